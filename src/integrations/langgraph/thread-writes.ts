import type { Annals, KeyWrite, Namespace } from 'annals'
import { AnnalsError } from '../../index.ts'
import { Recent } from './recent.ts'
import { EPOCH_KEY, WRITER_KEY } from './thread-keys.ts'

/** Options of a saver that is the only writer of the threads that it writes. */
export interface ThreadLeaseOptions {
  /** The name of the writer, which the errors of other writers contain. */
  readonly owner: string
  /** How long a thread stays reserved after its writer's last write, in milliseconds. */
  readonly ttlMs: number
}

/** A put of a saver. */
export interface ThreadPut {
  readonly key: string
  readonly value: Uint8Array | null
  /** Keeps the value of a key that exists. */
  readonly once?: boolean
}

/** Writes to threads. Each call of `write` is one commit. */
export interface ThreadWriter {
  /** Called when a graph reads the newest state of the thread. */
  observe(scope: Namespace): Promise<void> | void
  write(scope: Namespace, puts: readonly ThreadPut[]): Promise<void>
  release(scope: Namespace): Promise<void> | void
}

/** Writes without a lease: any number of savers may write to a thread. */
export class SharedWriter implements ThreadWriter {
  readonly #db: Annals

  constructor(db: Annals) {
    this.#db = db
  }

  observe(): void {}

  release(): void {}

  async write(scope: Namespace, puts: readonly ThreadPut[]): Promise<void> {
    if (puts.every(put => put.once !== true)) {
      await this.#db.kv.write(
        scope,
        puts.map(({ key, value }): KeyWrite => ({ op: 'put', key, value })),
      )
      return
    }
    const newest = lastOfEach(puts)
    await this.#db.kv.update<void>(scope, { keys: newest.map(put => put.key) }, ({ keys: found }) => ({
      puts: allowed(newest, found),
      result: undefined,
    }))
  }
}

const THREADS_MAX = 10_000

interface Epoch {
  /** How often the thread has changed its writer. */
  readonly number: number
  /** Identifies the newest writer. */
  readonly token: string
}

/**
 * Writes with a lease. A saver takes a thread's lease with its first write, and renews it with each further one, in the commit of
 * the write. Each change of the writer increases the thread's epoch. The saver remembers the epoch that it last read. A write is
 * refused with `WRITER_FENCED` if another saver holds the lease, or has held it since then, because the graph behind such a write
 * has not seen the newest state.
 */
export class LeasedWriter implements ThreadWriter {
  readonly #db: Annals
  readonly #options: ThreadLeaseOptions
  /** Distinguishes savers whose owners have the same name. */
  readonly #token: string = crypto.randomUUID()
  readonly #epochs = new Recent<number>(THREADS_MAX)

  constructor(db: Annals, options: ThreadLeaseOptions) {
    this.#db = db
    this.#options = options
  }

  async observe(scope: Namespace): Promise<void> {
    const epoch = await this.#db.kv.get<Epoch>(scope, EPOCH_KEY)
    this.#epochs.set(scope.run, epoch?.number ?? 0)
  }

  async write(scope: Namespace, puts: readonly ThreadPut[]): Promise<void> {
    const { owner, ttlMs } = this.#options
    const seen = this.#epochs.get(scope.run)
    const newest = lastOfEach(puts)
    const reads = { keys: [EPOCH_KEY, WRITER_KEY, ...newest.map(put => put.key)] }
    const number = await this.#db.kv.update<number>(scope, reads, ({ keys: [stored, writer, ...found] }) => {
      const epoch = epochOf(stored)
      const isOwn = epoch.token === this.#token
      if (!isOwn && writer !== undefined) throw fenced(scope, `${JSON.stringify(writer)} holds its lease`)
      if (!isOwn && seen !== undefined && seen !== epoch.number) {
        throw fenced(scope, 'another writer has changed it since it was read')
      }
      const next = isOwn ? epoch : { number: epoch.number + 1, token: this.#token }
      const lease = [
        { key: EPOCH_KEY, value: next },
        { key: WRITER_KEY, value: owner, ttlMs },
      ]
      return { puts: [...lease, ...allowed(newest, found)], result: next.number }
    })
    this.#epochs.set(scope.run, number)
  }

  /** Ends the lease, so that another saver may write at once. Does nothing if another saver holds it. */
  async release(scope: Namespace): Promise<void> {
    await this.#db.kv.update<void>(scope, { keys: [EPOCH_KEY, WRITER_KEY] }, ({ keys: [stored] }) => ({
      deletes: epochOf(stored).token === this.#token ? [WRITER_KEY] : [],
      result: undefined,
    }))
  }
}

function epochOf(stored: unknown): Epoch {
  return (stored as Epoch | undefined) ?? { number: 0, token: '' }
}

function fenced({ run }: Namespace, why: string): AnnalsError {
  return new AnnalsError('WRITER_FENCED', `thread ${JSON.stringify(run)} can't be written: ${why}`, {
    threadId: run,
  })
}

/** The last put of each key, because an update may write a key only once. */
function lastOfEach(puts: readonly ThreadPut[]): readonly ThreadPut[] {
  return [...new Map(puts.map(put => [put.key, put])).values()]
}

/** The puts, except those that must not replace the value that was found. */
function allowed(
  puts: readonly ThreadPut[],
  found: readonly unknown[],
): readonly { readonly key: string; readonly value: Uint8Array | null }[] {
  return puts
    .filter((put, i) => put.once !== true || found[i] === undefined)
    .map(({ key, value }) => ({ key, value }))
}
