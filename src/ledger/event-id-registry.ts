import { basename, dirname, resolve } from 'node:path'
import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
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
 * Which event id a producer has chosen for `(runId, idempotencyKey)`. It is
 * written before the event is sent, so that a retry, even after a crash, sends
 * the same. (An id that was made from the key would be none: ids are random.)
 */
export interface EventIdRegistry {
  /** The id that is known, or else `eventId`, which is durable when this resolves. */
  claim(runId: string, idempotencyKey: string, eventId: string): Promise<string>
  /** The ledger knows the event under this id: from now on so does the registry. */
  adopt(runId: string, idempotencyKey: string, eventId: string): Promise<void>
}

/** The registry of a ledger, which also knows runs by their namespaces. */
export interface LedgerRegistry extends EventIdRegistry {
  claim(runId: Scope, idempotencyKey: string, eventId: string): Promise<string>
  adopt(runId: Scope, idempotencyKey: string, eventId: string): Promise<void>
}

/** A registry in the store where the ledger is. */
export class StoredRegistry implements LedgerRegistry {
  readonly #database: Database
  readonly #scopes: RunScopes

  /** @internal Use `db.ledger.registry`. */
  constructor(database: Database, scopes: RunScopes) {
    this.#database = database
    this.#scopes = scopes
  }

  async claim(run: Scope, idempotencyKey: string, eventId: string): Promise<string> {
    checkEventId(eventId)
    return this.#step(run, checkKey(idempotencyKey), (place, entry) => ({
      operations: entry === undefined ? [putAt(place, eventId)] : [],
      result: entry?.value ?? eventId,
    }))
  }

  async adopt(run: Scope, idempotencyKey: string, eventId: string): Promise<void> {
    checkEventId(eventId)
    await this.#step(run, checkKey(idempotencyKey), place => ({
      operations: [putAt(place, eventId)],
      result: '',
    }))
  }

  /** One step over the entry of a key, in the scope in which the run lives, or would begin. */
  async #step(
    run: Scope,
    idempotencyKey: string,
    step: (place: Place, entry: Entry | undefined) => ReturnType<Step<string>>,
  ): Promise<string> {
    const name = this.#scopes.named(run)
    checkEventRunId(name.runId)
    const guess = this.#scopes.guess(name)
    const place = eventIdPlace(guess, idempotencyKey)
    // A run that has begun has its heading where it lives: then nobody need look at the index, which all runs share.
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
 * A registry in a file of its own, for a producer that has no store: one line of
 * JSON for each id, durable before it is used. A last line that a crash has torn
 * was never used, and is cut off for good.
 */
export class FileRegistry implements EventIdRegistry, AsyncDisposable {
  readonly #disk: Disk
  readonly #file: LineFile
  readonly #ids: Map<string, string>
  #isClosed = false
  #failure: AnnalsError | undefined
  /** The last call about each key, while it is under way: calls about one key are answered one after the other. */
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

  async claim(runId: string, idempotencyKey: string, eventId: string): Promise<string> {
    const line = checkLine({ runId, idempotencyKey, eventId })
    return this.#inTurn(nameOf(line), async name => {
      const known = this.#ids.get(name)
      if (known === undefined) await this.#write(line)
      return known ?? eventId
    })
  }

  async adopt(runId: string, idempotencyKey: string, eventId: string): Promise<void> {
    const line = checkLine({ runId, idempotencyKey, eventId })
    return this.#inTurn(nameOf(line), async name => {
      if (this.#ids.get(name) !== eventId) await this.#write(line)
    })
  }

  /** Waits for what is under way. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    await Promise.allSettled(this.#underWay.values())
    await this.#file.close()
    this.#disk.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #write(line: Line): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure
    try {
      await this.#file.append(`${JSON.stringify(line)}\n`)
    } catch (error) {
      // Whether the line is there is not known before the file is read again.
      const message = `nothing can be written any more: ${String(error)}; open the registry again`
      this.#failure ??= new AnnalsError('READ_ONLY', message, {}, error)
      throw error
    }
    this.#ids.set(nameOf(line), line.eventId)
  }

  async #inTurn<T>(name: string, work: (name: string) => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new AnnalsError('CLOSED', 'the event-id registry is closed')
    const start = (): Promise<T> => work(name)
    // A failure is for the caller that asked for it.
    const turn = (this.#underWay.get(name) ?? Promise.resolve()).then(start, start)
    this.#underWay.set(name, turn)
    try {
      return await turn
    } finally {
      if (this.#underWay.get(name) === turn) this.#underWay.delete(name)
    }
  }
}

/** A registry in a file, made if it is missing. One process at a time; close it when done. */
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
  const message = `line ${line} of ${file} is no entry of an event-id registry`
  return new AnnalsError('CORRUPT', message, { file, line, offset })
}

const KEY = /^[0-9a-f]{64}$/

function checkKey(idempotencyKey: string): string {
  if (typeof idempotencyKey === 'string' && KEY.test(idempotencyKey)) return idempotencyKey
  throw new AnnalsError('INVALID_ARGUMENT', 'idempotencyKey must be 64 lowercase hex digits', {
    name: 'idempotencyKey',
    value: idempotencyKey,
  })
}

function checkEventId(eventId: string): string {
  if (isUuidV4(eventId)) return eventId
  throw new AnnalsError('INVALID_ARGUMENT', 'eventId must be a UUID v4', { name: 'eventId', value: eventId })
}
