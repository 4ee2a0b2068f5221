import type { ByteString } from '../core/bytes.ts'
import type { Commit, CommitOutcome } from '../engine/storage.ts'
import type { GivenTimes } from './commit-batch.ts'
import { CommitQueue, tenantOfCommit } from './commit-queue.ts'
import type { ConnectionSettings } from './connection.ts'
import { heldMs, patienceMs } from './writers.ts'

/** A tenant with its own connection keeps it until it has been idle this long. */
const APART_MS = 30_000

interface Apart {
  readonly queue: CommitQueue
  readonly timer: NodeJS.Timeout
}

/**
 * The commits of all tenants share one connection, unless a lock of a tenant is
 * held, for example by a role that never ends its transaction. Then all commits
 * behind it would wait, so the commits of that tenant move to their own connection.
 *
 * together → apart (a lock was not free in time) → together (idle for a while)
 */
export class TenantCommitters {
  readonly #settings: ConnectionSettings
  readonly #given: () => GivenTimes
  readonly #together: CommitQueue
  readonly #apart = new Map<ByteString, Apart>()

  constructor(settings: ConnectionSettings, given: () => GivenTimes) {
    this.#settings = settings
    this.#given = given
    this.#together = new CommitQueue({ ...settings, lockMs: heldMs(settings) }, given, held => {
      for (const { commit, resolve, reject } of held) {
        this.#ofTenant(tenantOfCommit(commit)).commit(commit).then(resolve, reject)
      }
    })
  }

  commit(commit: Commit): Promise<CommitOutcome> {
    if (this.#apart.size === 0) return this.#together.commit(commit)
    const tenant = tenantOfCommit(commit)
    return (this.#apart.has(tenant) ? this.#ofTenant(tenant) : this.#together).commit(commit)
  }

  /** Resolves once all commits so far that write these scopes have been answered. */
  async quiet(scopes: readonly ByteString[]): Promise<void> {
    await this.#whileSomeMove(queue => queue.quiet(scopes))
  }

  /** Whether a commit is waiting or under way. */
  get isBusy(): boolean {
    return this.#all().some(({ isBusy }) => isBusy)
  }

  /** Resolves once all commits so far have been answered. */
  async idle(): Promise<void> {
    await this.#whileSomeMove(queue => queue.idle())
  }

  /** Waits for all commits so far, then closes the connections. */
  async close(): Promise<void> {
    for (const { timer } of this.#apart.values()) clearTimeout(timer)
    await Promise.all(this.#all().map(queue => queue.close()))
  }

  /** Waits for all queues. Commits may move to a new queue meanwhile, which is then waited for too. */
  async #whileSomeMove(wait: (queue: CommitQueue) => Promise<void>): Promise<void> {
    const waitedFor = new Set<CommitQueue>()
    for (;;) {
      const all = this.#all()
      if (all.every(queue => waitedFor.has(queue))) return
      await Promise.all(all.map(wait))
      for (const queue of all) waitedFor.add(queue)
    }
  }

  #all(): CommitQueue[] {
    return [this.#together, ...[...this.#apart.values()].map(({ queue }) => queue)]
  }

  #ofTenant(tenant: ByteString): CommitQueue {
    let apart = this.#apart.get(tenant)
    if (apart === undefined) {
      const queue = new CommitQueue({ ...this.#settings, lockMs: patienceMs(this.#settings) }, this.#given)
      apart = { queue, timer: setTimeout(() => this.#rejoin(tenant), APART_MS).unref() }
      this.#apart.set(tenant, apart)
    }
    apart.timer.refresh()
    return apart.queue
  }

  #rejoin(tenant: ByteString): void {
    const apart = this.#apart.get(tenant)
    if (apart === undefined) return
    if (apart.queue.isBusy) apart.timer.refresh()
    else {
      this.#apart.delete(tenant)
      // An idle connection that fails to close was lost before.
      apart.queue.close().catch(() => undefined)
    }
  }
}
