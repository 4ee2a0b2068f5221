import { type FileHandle, open } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { isUuidV4 } from '../core/id.ts'
import { checkText } from '../core/text.ts'
import type { Database } from '../engine/database.ts'
import { eventIdPlace, putAt } from './stored.ts'

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

const RUN_ID_BYTES_MAX = 256

/** A registry in the store where the ledger is. */
export class StoredRegistry implements EventIdRegistry {
  readonly #database: Database
  readonly #scopeOf: (runId: string) => ByteString

  /** @internal Use `db.ledger.registry`. */
  constructor(database: Database, scopeOf: (runId: string) => ByteString) {
    this.#database = database
    this.#scopeOf = scopeOf
  }

  async claim(runId: string, idempotencyKey: string, eventId: string): Promise<string> {
    const place = eventIdPlace(this.#scopeOf(runId), checkKey(idempotencyKey))
    checkEventId(eventId)
    const { result } = await this.#database.update([place], ([entry]) => ({
      operations: entry === undefined ? [putAt(place, eventId)] : [],
      result: entry?.value ?? eventId,
    }))
    return result
  }

  async adopt(runId: string, idempotencyKey: string, eventId: string): Promise<void> {
    const place = eventIdPlace(this.#scopeOf(runId), checkKey(idempotencyKey))
    await this.#database.write([putAt(place, checkEventId(eventId))])
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
 * JSON for each id, appended and synced before it is used. A last line that a
 * crash has torn was never used, and is cut off for good.
 */
export class FileRegistry implements EventIdRegistry, AsyncDisposable {
  readonly #file: FileHandle
  readonly #ids: Map<string, string>
  #end: number
  #isClosed = false
  #failure: AnnalsError | undefined
  /** Lines are written one after the other. */
  #last: Promise<unknown> = Promise.resolve()

  private constructor(file: FileHandle, ids: Map<string, string>, end: number) {
    this.#file = file
    this.#ids = ids
    this.#end = end
  }

  /** @internal Use `openFileRegistry`. */
  static async open(path: string): Promise<FileRegistry> {
    const file = await open(path, 'a+').then(async created => {
      await created.close()
      return open(path, 'r+')
    })
    try {
      const bytes = await file.readFile()
      const ids = new Map<string, string>()
      let end = 0
      for (let next = bytes.indexOf(NEWLINE); next >= 0; next = bytes.indexOf(NEWLINE, end)) {
        const line = parseLine(bytes.toString('utf8', end, next))
        if (line === undefined) {
          // Of the last line, a crash may as well have kept the end alone.
          if (bytes.indexOf(NEWLINE, next + 1) < 0) break
          throw corrupt(path, bytes, end)
        }
        ids.set(nameOf(line.runId, line.idempotencyKey), line.eventId)
        end = next + 1
      }
      if (end < bytes.length) await file.truncate(end)
      // What is read may not be on the device yet, nor the file in its folder, if the process before died early.
      await file.datasync()
      await syncFolder(dirname(path))
      return new FileRegistry(file, ids, end)
    } catch (error) {
      await file.close()
      throw error
    }
  }

  async claim(runId: string, idempotencyKey: string, eventId: string): Promise<string> {
    checkEventId(eventId)
    checkText('runId', runId, { bytesMax: RUN_ID_BYTES_MAX })
    return this.#inTurn(async () => {
      const known = this.#ids.get(nameOf(runId, checkKey(idempotencyKey)))
      if (known === undefined) await this.#write({ runId, idempotencyKey, eventId })
      return known ?? eventId
    })
  }

  async adopt(runId: string, idempotencyKey: string, eventId: string): Promise<void> {
    checkEventId(eventId)
    checkText('runId', runId, { bytesMax: RUN_ID_BYTES_MAX })
    return this.#inTurn(async () => {
      if (this.#ids.get(nameOf(runId, checkKey(idempotencyKey))) === eventId) return
      await this.#write({ runId, idempotencyKey, eventId })
    })
  }

  /** Waits for what is under way. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    const closed = this.#inTurn(() => this.#file.close())
    this.#isClosed = true
    await closed
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #write(line: Line): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure
    const bytes = Buffer.from(`${JSON.stringify(line)}\n`, 'utf8')
    try {
      for (let written = 0; written < bytes.length; ) {
        const { bytesWritten } = await this.#file.write(
          bytes,
          written,
          bytes.length - written,
          this.#end + written,
        )
        written += bytesWritten
      }
      await this.#file.datasync()
    } catch (error) {
      // Nobody knows what is in the file now: another line over it could leave the end of this one behind.
      const message = `nothing can be written any more: ${String(error)}; open the registry again`
      this.#failure = new AnnalsError('READ_ONLY', message, {}, error)
      throw error
    }
    this.#end += bytes.length
    this.#ids.set(nameOf(line.runId, line.idempotencyKey), line.eventId)
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new AnnalsError('CLOSED', 'the event-id registry is closed')
    const turn = this.#last.then(work, work)
    // Whoever comes next waits for this one, but its failure is not theirs.
    this.#last = turn.catch(() => undefined)
    return turn
  }
}

/** A registry in a file, made if it is missing. One process at a time; close it when done. */
export function openFileRegistry(path: string): Promise<FileRegistry> {
  return FileRegistry.open(path)
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

function nameOf(runId: string, idempotencyKey: string): string {
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
