import type { ByteString } from '../core/bytes.ts'
import type { Commit, CommitOutcome } from '../engine/storage.ts'
import type { GivenTimes } from './batch.ts'
import { Committer, tenantOfCommit } from './committer.ts'
import type { ConnectionSettings } from './connection.ts'
import { patienceMs } from './writers.ts'

/** Longer than a commit of another process takes: a lock that is held longer belongs to a transaction that was left open. */
const HELD_MS = 500
/** A tenant that was held up keeps its own connection until it has been idle this long. */
const APART_MS = 30_000

interface Apart {
  readonly committer: Committer
  readonly timer: NodeJS.Timeout
}

/**
 * Commits of all tenants of a process share one connection. A tenant whose
 * locks somebody else holds, such as a role that never ends its transaction,
 * would hold up all of them: its commits wait on a connection of their own.
 *
 * together → apart (a lock was not to be had in time) → together (quiet for a while)
 */
export class Committers {
  readonly #settings: ConnectionSettings
  readonly #given: () => GivenTimes
  readonly #together: Committer
  readonly #apart = new Map<ByteString, Apart>()

  constructor(settings: ConnectionSettings, given: () => GivenTimes) {
    this.#settings = settings
    this.#given = given
    const lockMs = Math.min(HELD_MS, Math.ceil(settings.timeoutMs / 2))
    this.#together = new Committer({ ...settings, lockMs }, given, held => {
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

  /** Resolves once everything that was to be written to these scopes so far is through. */
  async quiet(scopes: readonly ByteString[]): Promise<void> {
    await this.#whileSomeMove(committer => committer.quiet(scopes))
  }

  /** Whether something is under way. */
  get isBusy(): boolean {
    return this.#all().some(({ isBusy }) => isBusy)
  }

  /** Resolves once all that is under way now is through, and those who asked for it were told. */
  async idle(): Promise<void> {
    await this.#whileSomeMove(committer => committer.idle())
  }

  /** Waits for what is under way. */
  async close(): Promise<void> {
    for (const { timer } of this.#apart.values()) clearTimeout(timer)
    await Promise.all(this.#all().map(committer => committer.close()))
  }

  /** What was waited for may have gone its own way meanwhile. */
  async #whileSomeMove(wait: (committer: Committer) => Promise<void>): Promise<void> {
    const waitedFor = new Set<Committer>()
    for (;;) {
      const all = this.#all()
      if (all.every(committer => waitedFor.has(committer))) return
      await Promise.all(all.map(wait))
      for (const committer of all) waitedFor.add(committer)
    }
  }

  #all(): Committer[] {
    return [this.#together, ...[...this.#apart.values()].map(({ committer }) => committer)]
  }

  #ofTenant(tenant: ByteString): Committer {
    let apart = this.#apart.get(tenant)
    if (apart === undefined) {
      const committer = new Committer({ ...this.#settings, lockMs: patienceMs(this.#settings) }, this.#given)
      apart = { committer, timer: setTimeout(() => this.#rejoin(tenant), APART_MS).unref() }
      this.#apart.set(tenant, apart)
    }
    apart.timer.refresh()
    return apart.committer
  }

  #rejoin(tenant: ByteString): void {
    const apart = this.#apart.get(tenant)
    if (apart === undefined) return
    if (apart.committer.isBusy) apart.timer.refresh()
    else {
      this.#apart.delete(tenant)
      // An idle connection that can't be closed is lost already.
      apart.committer.close().catch(() => undefined)
    }
  }
}
