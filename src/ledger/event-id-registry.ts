import { basename, dirname, resolve } from 'node:path'
import type { ByteString } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { isUuidV4 } from '../core/id.ts'
import type { Disk } from '../disk/disk.ts'
import { LineFile, wholeLines } from '../disk/line-file.ts'
import { openNodeDisk } from '../disk/node-disk.ts'
import type { Database } from '../engine/database.ts'
import type { Scope } from '../engine/keys.ts'
import type { Entry, Place, Step } from '../engine/storage.ts'
import { type RunScopes, stepInRun } from '../primitives/run-scopes.ts'
import { checkEventRunId } from './fields.ts'
import { eventIdPlace, HEADING_KEY, placeOf, putAt } from './stored.ts'

/**
 * Remembers the event id that a producer has chosen for a run and idempotency
 * key. The id is durable before the event is sent, so a retry sends the same
 * id, even after a crash. Ids are random, so they can't be derived from the key.
 */
export interface EventIdRegistry {
  /** Returns the id that was chosen before, or stores `eventId` durably and returns it. */
  claim(runId: string, idempotencyKey: string, eventId: string): Promise<string>
  /** Replaces the id by the one under which the ledger has stored the event. */
  adopt(runId: string, idempotencyKey: string, eventId: string): Promise<void>
}

/** The registry of a ledger. It also accepts a namespace in place of a run id. */
export interface LedgerRegistry extends EventIdRegistry {
  /** Returns the id that was chosen before, or stores `eventId` durably and returns it. */
  claim(runId: Scope, idempotencyKey: string, eventId: string): Promise<string>
  /** Replaces the id by the one under which the ledger has stored the event. */
  adopt(runId: Scope, idempotencyKey: string, eventId: string): Promise<void>
}

/** A registry in the same store as the ledger. */
export class StoredRegistry implements LedgerRegistry {
  readonly #database: Database
  readonly #scopes: RunScopes

  /** @internal Use `db.ledger.registry`. */
  constructor(database: Database, scopes: RunScopes) {
    this.#database = database
    this.#scopes = scopes
  }

  /** Returns the id that was chosen before, or stores `eventId` durably and returns it. */
  async claim(run: Scope, idempotencyKey: string, eventId: string): Promise<string> {
    checkEventId(eventId)
    return this.#step(run, checkKey(idempotencyKey), (place, entry) => ({
      operations: entry === undefined ? [putAt(place, eventId)] : [],
      result: entry?.value ?? eventId,
    }))
  }

  /** Replaces the id by the one under which the ledger has stored the event. */
  async adopt(run: Scope, idempotencyKey: string, eventId: string): Promise<void> {
    checkEventId(eventId)
    await this.#step(run, checkKey(idempotencyKey), place => ({
      operations: [putAt(place, eventId)],
      result: '',
    }))
  }

  /** Runs one step over the key's entry, in the scope in which the run lives or would begin. */
  async #step(
    run: Scope,
    idempotencyKey: string,
    step: (place: Place, entry: Entry | undefined) => ReturnType<Step<string>>,
  ): Promise<string> {
    const name = this.#scopes.named(run)
    checkEventRunId(name.runId)
    const guess = this.#scopes.guess(name)
    const place = eventIdPlace(guess, idempotencyKey)
    // A run has its heading only where it lives. If it is there, the index, which all runs share, need not be read.
    const reads = [placeOf(guess, HEADING_KEY), place]
    const { result } = await this.#database.update<string | undefined>(reads, ([heading, entry]) =>
      heading === undefined ? { operations: [], result: undefined } : step(place, entry),
    )
    if (result !== undefined) return result
    const placesIn = (scope: ByteString): readonly Place[] => [eventIdPlace(scope, idempotencyKey)]
    return stepInRun(this.#database, this.#scopes, name, placesIn, (_, [entry], scope) =>
      step(eventIdPlace(scope, idempotencyKey), entry),
    )
  }
}

const NEWLINE = 0x0a

interface Line {
  readonly runId: string
  readonly idempotencyKey: string
  readonly eventId: string
}

/**
 * A registry in a file, for a producer that has no store. Each id is one line of
 * JSON, durable before it is used. If a crash has torn the last line, its id was
 * never used, and opening the file removes it.
 */
export class FileRegistry implements EventIdRegistry, AsyncDisposable {
  readonly #disk: Disk
  readonly #file: LineFile
  readonly #ids: Map<string, string>
  #isClosed = false
  #failure: AnnalsError | undefined
  /** The last call for each key that is in progress. Calls for one key run one after the other. */
  readonly #underWay = new Map<string, Promise<unknown>>()

  private constructor(disk: Disk, file: LineFile, ids: Map<string, string>) {
    this.#disk = disk
    this.#file = file
    this.#ids = ids
  }

  /** @internal Use `openFileRegistry`. Closes the disk when it is closed. */
  static async open(disk: Disk, name: string, path: string): Promise<FileRegistry> {
    const file = await LineFile.open(disk, name)
    try {
      const bytes = file.read()
      const end = wholeLines(bytes)
      const ids = new Map<string, string>()
      for (let at = 0; at < end; ) {
        const next = bytes.indexOf(NEWLINE, at)
        const line = parseLine(bytes.toString('utf8', at, next))
        if (line === undefined) throw corrupt(path, bytes, at)
        ids.set(nameOf(line), line.eventId)
        at = next + 1
      }
      file.cut(end)
      return new FileRegistry(disk, file, ids)
    } catch (error) {
      await file.close()
      throw error
    }
  }

  /** Returns the id that was chosen before, or stores `eventId` durably and returns it. */
  async claim(runId: string, idempotencyKey: string, eventId: string): Promise<string> {
    const line = checkLine({ runId, idempotencyKey, eventId })
    return this.#inTurn(nameOf(line), async name => {
      const known = this.#ids.get(name)
      if (known === undefined) await this.#write(line)
      return known ?? eventId
    })
  }

  /** Replaces the id by the one under which the ledger has stored the event. */
  async adopt(runId: string, idempotencyKey: string, eventId: string): Promise<void> {
    const line = checkLine({ runId, idempotencyKey, eventId })
    return this.#inTurn(nameOf(line), async name => {
      if (this.#ids.get(name) !== eventId) await this.#write(line)
    })
  }

  /** Waits for calls in progress, then closes the file. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    await Promise.allSettled(this.#underWay.values())
    await this.#file.close()
    this.#disk.close()
  }

  /** Closes the registry at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #write(line: Line): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure
    try {
      await this.#file.append(`${JSON.stringify(line)}\n`)
    } catch (error) {
      // The line may or may not be in the file; only reading it again can tell.
      const message = `the registry is read-only after a failed write: ${String(error)}; open it again`
      this.#failure ??= new AnnalsError('READ_ONLY', message, {}, error)
      throw error
    }
    this.#ids.set(nameOf(line), line.eventId)
  }

  async #inTurn<T>(name: string, work: (name: string) => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new AnnalsError('CLOSED', 'the event-id registry is closed')
    const start = (): Promise<T> => work(name)
    // A failed call must not fail the next one.
    const turn = (this.#underWay.get(name) ?? Promise.resolve()).then(start, start)
    this.#underWay.set(name, turn)
    try {
      return await turn
    } finally {
      if (this.#underWay.get(name) === turn) this.#underWay.delete(name)
    }
  }
}

/** Opens a registry in a file, and creates the file if it is missing. Only one process may use it at a time. */
export async function openFileRegistry(path: string): Promise<FileRegistry> {
  const file = resolve(path)
  const disk = openNodeDisk(dirname(file), { make: false })
  try {
    return await FileRegistry.open(disk, basename(file), path)
  } catch (error) {
    disk.close()
    throw error
  }
}

function checkLine({ runId, idempotencyKey, eventId }: Line): Line {
  checkEventId(eventId)
  checkEventRunId(runId)
  return { runId, idempotencyKey: checkKey(idempotencyKey), eventId }
}

function nameOf({ runId, idempotencyKey }: Line): string {
  return `${idempotencyKey} ${runId}`
}

function parseLine(text: string): Line | undefined {
  try {
    const line = JSON.parse(text) as Partial<Line> | null
    const isLine =
      typeof line?.runId === 'string' && KEY.test(String(line.idempotencyKey)) && isUuidV4(line.eventId)
    return isLine ? (line as Line) : undefined
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

function corrupt(file: string, bytes: Buffer, offset: number): AnnalsError {
  const line = bytes.toString('latin1', 0, offset).split('\n').length
  const message = `line ${line} of ${file} is not an entry of an event-id registry`
  return new AnnalsError('CORRUPT', message, { file, line, offset })
}

const KEY = /^[0-9a-f]{64}$/

function checkKey(idempotencyKey: string): string {
  if (typeof idempotencyKey === 'string' && KEY.test(idempotencyKey)) return idempotencyKey
  throw invalidArgument('idempotencyKey', 'must be 64 lowercase hex digits', idempotencyKey)
}

function checkEventId(eventId: string): string {
  if (isUuidV4(eventId)) return eventId
  throw invalidArgument('eventId', 'must be a UUID v4', eventId)
}
