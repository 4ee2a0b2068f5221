import { AnnalsError } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkOptions } from '../core/options.ts'
import type { Value } from '../core/value.ts'
import { fromJson, toJson } from '../core/value-json.ts'
import type { Scope } from '../engine/keys.ts'
import type { ListOptions } from '../primitives/key-range.ts'
import type { PutOptions, VersionedValue } from '../primitives/kv.ts'
import type { Cell } from '../primitives/state-cell.ts'
import { all, pagesOf } from './pages.ts'
import { idPath, runPath } from './paths.ts'
import type { Ask, Transport } from './transport.ts'

const BYTES = 'application/octet-stream'
const PAGE_MAX = 10_000

interface KvEntry {
  readonly key: string
  readonly value?: unknown
}

/** The key-value entries of runs, with the methods of `db.kv`. */
export class KvClient {
  readonly #transport: Transport

  /** @internal Use `createClient`. */
  constructor(transport: Transport) {
    this.#transport = transport
  }

  /** The value; undefined if the key does not exist. */
  async get(runId: Scope, key: string): Promise<Value | undefined> {
    return (await this.getVersioned(runId, key))?.value
  }

  /** The value with its version and the time of its last write; undefined if the key does not exist. */
  async getVersioned(runId: Scope, key: string): Promise<VersionedValue | undefined> {
    const response = await this.#transport.ask(keyPath(runId, key)).catch(undefinedIfMissing)
    if (response === undefined) return undefined
    const isBytes = response.headers.get('Content-Type') === BYTES
    const value = isBytes ? new Uint8Array(await response.arrayBuffer()) : fromJson(await response.json())
    const version = Number(response.headers.get('ETag')?.replaceAll('"', ''))
    return Object.freeze({ value, version, updatedAt: Number(response.headers.get('Annals-Updated-At')) })
  }

  /** Writes a value and replaces an earlier one. */
  async put(runId: Scope, key: string, value: Value, options: PutOptions = {}): Promise<void> {
    checkOptions('put', options, ['ttlMs'])
    await this.#transport.ask(keyPath(runId, key), { method: 'PUT', query: { ...options }, ...bodyOf(value) })
  }

  /** Deletes a key. Returns whether it existed; false if a retry found it already deleted. */
  async delete(runId: Scope, key: string): Promise<boolean> {
    const path = keyPath(runId, key)
    return (await this.#transport.json<{ readonly deleted: boolean }>(path, { method: 'DELETE' })).deleted
  }

  /** Whether the key exists. */
  async exists(runId: Scope, key: string): Promise<boolean> {
    const [first] = await this.#page(runId, { prefix: key, limit: 1 }, false)
    return first?.key === key
  }

  /** The keys, in byte order of their UTF-8. */
  async list(runId: Scope, options: ListOptions = {}): Promise<readonly string[]> {
    return Object.freeze((await this.#page(runId, options, false)).map(({ key }) => key))
  }

  /** The keys and values, in byte order of the keys' UTF-8. */
  async entries(runId: Scope, options: ListOptions = {}): Promise<readonly (readonly [string, Value])[]> {
    const found = await this.#page(runId, options, true)
    return Object.freeze(found.map(({ key, value }) => Object.freeze([key, fromJson(value)] as const)))
  }

  async #page(runId: Scope, options: ListOptions, values: boolean): Promise<readonly KvEntry[]> {
    checkOptions('list', options, ['prefix', 'limit', 'after'])
    const { prefix, limit, after } = options
    const found: KvEntry[] = []
    const pages = pagesOf<KvEntry>(this.#transport, runPath(runId, 'kv'), 'entries', {
      limit: limit !== undefined && limit <= PAGE_MAX ? limit : undefined,
      start: after,
      query: { prefix, values: values ? true : undefined },
    })
    for await (const page of pages) {
      for (const entry of page) if (limit === undefined || found.length < limit) found.push(entry)
      if (found.length === limit) break
    }
    return found
  }
}

/** The state cells of runs, with methods of `db.cells`. */
export class CellsClient {
  readonly #transport: Transport

  /** @internal Use `createClient`. */
  constructor(transport: Transport) {
    this.#transport = transport
  }

  /** The cell; undefined if it does not exist. */
  async read(runId: Scope, name: string): Promise<Cell | undefined> {
    const response = await this.#transport.ask(cellPath(runId, name)).catch(undefinedIfMissing)
    return response === undefined ? undefined : fromJson<Cell>(await response.json())
  }

  /** Creates the cell and returns its version. `CELL_EXISTS` if it exists. */
  async init(runId: Scope, name: string, value: Value): Promise<number> {
    return this.#write(runId, name, value, { 'If-None-Match': '*' })
  }

  /** Writes the cell if it has the expected version, and returns the new one. Else `VERSION_MISMATCH`. */
  async cas(runId: Scope, name: string, expectedVersion: number, value: Value): Promise<number> {
    const etag = `"${checkWhole('expectedVersion', expectedVersion)}"`
    return this.#write(runId, name, value, { 'If-Match': etag })
  }

  /** Writes the cell and returns its new version. */
  async set(runId: Scope, name: string, value: Value): Promise<number> {
    return this.#write(runId, name, value, {})
  }

  /** Deletes the cell. Returns whether it existed. */
  async delete(runId: Scope, name: string): Promise<boolean> {
    const path = cellPath(runId, name)
    return (await this.#transport.json<{ readonly deleted: boolean }>(path, { method: 'DELETE' })).deleted
  }

  /** Whether the cell exists. */
  async exists(runId: Scope, name: string): Promise<boolean> {
    return (await this.read(runId, name)) !== undefined
  }

  /** The names of the cells of a run, in byte order. */
  async list(runId: Scope): Promise<readonly string[]> {
    return all(pagesOf<string>(this.#transport, runPath(runId, 'cells'), 'cells'))
  }

  async #write(
    runId: Scope,
    name: string,
    value: Value,
    headers: Readonly<Record<string, string>>,
  ): Promise<number> {
    const ask: Ask = { method: 'PUT', headers, once: true, ...bodyOf(value) }
    return (await this.#transport.json<{ readonly version: number }>(cellPath(runId, name), ask)).version
  }
}

function keyPath(runId: Scope, key: string): string {
  return runPath(runId, 'kv', idPath('key', key))
}

function cellPath(runId: Scope, name: string): string {
  return runPath(runId, 'cells', idPath('name', name))
}

function bodyOf(value: Value): Pick<Ask, 'body'> {
  if (value instanceof Uint8Array) return { body: { content: value, type: BYTES } }
  return { body: { content: JSON.stringify(toJson(value)), type: 'application/json' } }
}

function undefinedIfMissing(error: unknown): undefined {
  const isMissing =
    error instanceof AnnalsError &&
    (error.code === 'CELL_NOT_FOUND' || (error.code === 'NOT_FOUND' && error.details['key'] !== undefined))
  if (!isMissing) throw error
}
