import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Annals } from 'annals'
import { invalidArgument } from '../core/errors.ts'
import { checkOptions } from '../core/options.ts'
import { isReservedTenant } from '../core/tenant.ts'
import { checkText } from '../core/text.ts'
import type { Value } from '../core/value.ts'
import { inChunks } from './paging.ts'

/** What a token may do. Each role includes the ones before it. */
export type Role = 'reader' | 'writer' | 'admin'
export const ROLES: readonly Role[] = ['reader', 'writer', 'admin']

/** The stored data of a token. The token itself is not stored. */
export interface TokenRecord {
  /** Identifies the token, for example to revoke it. */
  readonly id: string
  /** What the token is for; may be empty. */
  readonly name: string
  /** The tenant whose data the token reaches. */
  readonly tenant: string
  /** What the token may do. */
  readonly role: Role
  /** Milliseconds since 1970. */
  readonly createdAt: number
  /** Milliseconds since 1970; absent for a token that does not expire. */
  readonly expiresAt?: number
}

/** Options of `TokenStore.create`. */
export interface CreateTokenOptions {
  /** What the token is for, for people; up to 256 bytes. */
  readonly name?: string
  /** The tenant whose data the token reaches; default `default`. */
  readonly tenant?: string
  /** What the token may do. */
  readonly role: Role
  /** The lifetime in milliseconds; default: it does not expire. */
  readonly ttlMs?: number
}

/** A new token with its secret, which is returned only once. */
export interface CreatedToken extends TokenRecord {
  /** The secret, for the header `Authorization: Bearer …`. */
  readonly token: string
}

/** The tenant of the server's own data. No token can be created for it, so no request reaches it. */
export const OWN_TENANT = '_annals'
/** Every token begins with it. */
export const TOKEN_PREFIX = 'annals_'
const SCOPE = 'tokens'
/** A hundred years. */
const TTL_MAX_MS = 100 * 366 * 86_400_000
const ID = /^[0-9a-f]{16}$/
const SHAPE = /^annals_([0-9a-f]{16})_([A-Za-z0-9_-]{43})$/
const SECRET_BYTES = 32
const NAME_BYTES_MAX = 256
const TOKENS_AT_ONCE = 100

interface StoredToken extends TokenRecord {
  /** SHA-256 of the token, in hex. A slow hash is not needed: 256 random bits cannot be guessed. */
  readonly hash: string
}

/**
 * The access tokens of a server, stored in its database. Creating and revoking also appends an event in the same transaction, so
 * that every server on the database learns of a revocation at once.
 */
export class TokenStore {
  readonly #db: Annals
  readonly #clock: () => number

  /** Uses the tokens in this database. `clock` returns milliseconds since 1970. */
  constructor(db: Annals, clock: () => number = Date.now) {
    this.#db = db.forTenant(OWN_TENANT)
    this.#clock = clock
  }

  /** Creates a token. Only the result contains the secret; the database stores a hash. */
  async create(options: CreateTokenOptions): Promise<CreatedToken> {
    checkOptions('create', options, ['name', 'tenant', 'role', 'ttlMs'])
    const { name = '', tenant = 'default', role, ttlMs } = options
    if (name !== '') checkText('name', name, { bytesMax: NAME_BYTES_MAX })
    checkTenant(tenant)
    if (!ROLES.includes(role)) throw invalidArgument('role', `must be one of ${ROLES.join(', ')}`)
    if (ttlMs !== undefined && !(Number.isSafeInteger(ttlMs) && ttlMs > 0 && ttlMs <= TTL_MAX_MS)) {
      throw invalidArgument('ttlMs', 'must be a positive integer, at most a hundred years')
    }
    const id = randomBytes(8).toString('hex')
    const token = `${TOKEN_PREFIX}${id}_${randomBytes(SECRET_BYTES).toString('base64url')}`
    const createdAt = this.#clock()
    const expiry = ttlMs === undefined ? {} : { expiresAt: createdAt + ttlMs }
    const record: TokenRecord = { id, name, tenant, role, createdAt, ...expiry }
    const stored: StoredToken = { ...record, hash: hashOf(token).toString('hex') }
    await this.#db.transaction(SCOPE, async tx => {
      await tx.kv.put(id, stored as unknown as Value)
      await tx.events.append('token_created', record as unknown as Value)
    })
    return Object.freeze({ ...record, token })
  }

  /** The tokens that were not revoked, including expired ones, by creation time; of one tenant, or of all. */
  async list(options: { readonly tenant?: string } = {}): Promise<readonly TokenRecord[]> {
    checkOptions('list', options, ['tenant'])
    const records: TokenRecord[] = []
    for await (const record of this.iterate(options)) records.push(record)
    return records.sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1))
  }

  /** @internal The same ordered by id, after the given id, read on demand. */
  async *iterate({
    tenant,
    after,
  }: {
    readonly tenant?: string
    readonly after?: string | undefined
  } = {}): AsyncGenerator<TokenRecord, void, void> {
    if (after !== undefined && !ID.test(after)) throw invalidArgument('after', 'is not the id of a token')
    const entries = inChunks(
      after,
      TOKENS_AT_ONCE,
      (behind, limit) =>
        this.#db.kv.entries(SCOPE, { limit, ...(behind === undefined ? {} : { after: behind }) }),
      ([id]) => id,
    )
    for await (const [, stored] of entries) {
      const record = recordOf(stored)
      if (tenant === undefined || record.tenant === tenant) yield record
    }
  }

  /** Whether there is any token. */
  async exist(): Promise<boolean> {
    return (await this.#db.kv.list(SCOPE, { limit: 1 })).length > 0
  }

  /** The token with this id, including an expired one; undefined if it does not exist or was revoked. */
  async get(id: string): Promise<TokenRecord | undefined> {
    const stored = ID.test(id) ? await this.#db.kv.get(SCOPE, id) : undefined
    return stored === undefined ? undefined : recordOf(stored)
  }

  /** Revokes a token at once. Returns false if there is no such token, or none of that tenant. */
  async revoke(id: string, options: { readonly tenant?: string } = {}): Promise<boolean> {
    checkOptions('revoke', options, ['tenant'])
    if (!ID.test(id)) return false
    return this.#db.transaction(SCOPE, async tx => {
      const stored = await tx.kv.get(id)
      if (stored === undefined) return false
      const record = recordOf(stored)
      if (options.tenant !== undefined && record.tenant !== options.tenant) return false
      await tx.kv.delete(id)
      await tx.events.append('token_revoked', record as unknown as Value)
      return true
    })
  }

  /** The record of a valid token, else undefined. Reads the database each time, so that a revocation takes effect at once. */
  async verify(token: string): Promise<TokenRecord | undefined> {
    const [, id] = SHAPE.exec(token) ?? []
    const stored =
      id === undefined ? undefined : ((await this.#db.kv.get(SCOPE, id)) as StoredToken | undefined)
    // Compares even if there is no such token, so that the time reveals nothing about ids.
    const expected = stored === undefined ? NOTHING : Buffer.from(stored.hash, 'hex')
    const isRight = timingSafeEqual(hashOf(token), expected)
    if (!isRight || stored === undefined) return undefined
    const record = recordOf(stored as unknown as Value)
    return record.expiresAt !== undefined && record.expiresAt <= this.#clock() ? undefined : record
  }

  /** The ids of tokens that are revoked from now on. */
  async *revocations(signal: AbortSignal): AsyncGenerator<string, void, void> {
    const from = await this.#db.events.length(SCOPE)
    for await (const { type, payload } of this.#db.events.tail(SCOPE, { from, signal })) {
      if (type === 'token_revoked') yield recordOf(payload).id
    }
  }
}

/** A hash that no token has. */
const NOTHING = Buffer.alloc(32)

function hashOf(token: string): Buffer {
  return createHash('sha256').update(token, 'utf8').digest()
}

function recordOf(stored: Value): TokenRecord {
  const { hash: _, ...record } = stored as unknown as StoredToken
  return Object.freeze(record)
}

function checkTenant(tenant: unknown): void {
  checkText('tenant', tenant, { bytesMax: 256 })
  if (isReservedTenant(tenant as string)) throw invalidArgument('tenant', 'is reserved')
}
