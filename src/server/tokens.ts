import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Annals } from 'annals'
import { invalidArgument } from '../core/errors.ts'
import { checkOptions } from '../core/options.ts'
import { isReservedTenant } from '../core/tenant.ts'
import { checkText } from '../core/text.ts'
import type { Value } from '../core/value.ts'
import { inChunks } from './paging.ts'

/** Each may do what those before it may. */
export type Role = 'reader' | 'writer' | 'admin'
export const ROLES: readonly Role[] = ['reader', 'writer', 'admin']

/** What is known of a token; not the token itself, which nobody can find out any more. */
export interface TokenRecord {
  readonly id: string
  /** What it is for, for people to read. */
  readonly name: string
  readonly tenant: string
  readonly role: Role
  /** Milliseconds since 1970. */
  readonly createdAt: number
  readonly expiresAt?: number
}

export interface CreateTokenOptions {
  readonly name?: string
  /** Whose data it reaches; `default` without it. */
  readonly tenant?: string
  readonly role: Role
  /** For how long it is good; for good without it. */
  readonly ttlMs?: number
}

/** Shown once, when it is made. */
export interface CreatedToken extends TokenRecord {
  readonly token: string
}

/** What the server keeps for itself, as a tenant of its own: no token is given out for it, so no request reaches it. */
export const OWN_TENANT = '_annals'
/** Every token begins with it. */
export const TOKEN_PREFIX = 'annals_'
const SCOPE = 'tokens'
/** Whoever wants more wants one that does not expire. */
const TTL_MAX_MS = 100 * 366 * 86_400_000
const ID = /^[0-9a-f]{16}$/
const SHAPE = /^annals_([0-9a-f]{16})_([A-Za-z0-9_-]{43})$/
const SECRET_BYTES = 32
const NAME_BYTES_MAX = 256
const TOKENS_AT_ONCE = 100

interface StoredToken extends TokenRecord {
  /** SHA-256 of the token, in hex. 256 random bits need no slow hash: there is nothing to guess. */
  readonly hash: string
}

/**
 * The tokens of a server, in the database that it serves. Made and revoked in one transaction with an event that says
 * so: whoever follows these hears of a revocation at once, in whatever process it happened.
 */
export class TokenStore {
  readonly #db: Annals
  readonly #clock: () => number

  constructor(db: Annals, clock: () => number = Date.now) {
    this.#db = db.forTenant(OWN_TENANT)
    this.#clock = clock
  }

  /** Makes a token. It is in the answer alone. */
  async create(options: CreateTokenOptions): Promise<CreatedToken> {
    checkOptions('create', options, ['name', 'tenant', 'role', 'ttlMs'])
    const { name = '', tenant = 'default', role, ttlMs } = options
    if (name !== '') checkText('name', name, { bytesMax: NAME_BYTES_MAX })
    checkTenant(tenant)
    if (!ROLES.includes(role)) throw invalidArgument('role', `must be one of ${ROLES.join(', ')}`)
    if (ttlMs !== undefined && !(Number.isSafeInteger(ttlMs) && ttlMs > 0 && ttlMs <= TTL_MAX_MS)) {
      throw invalidArgument('ttlMs', 'must be a positive integer, of a hundred years at most')
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

  /** Those that were not revoked, also if they have expired; of one tenant, or of all. */
  async list(options: { readonly tenant?: string } = {}): Promise<readonly TokenRecord[]> {
    checkOptions('list', options, ['tenant'])
    const records: TokenRecord[] = []
    for await (const record of this.iterate(options)) records.push(record)
    return records.sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1))
  }

  /** @internal The same in the order of their ids, from behind one on, read as they are asked for. */
  async *iterate({
    tenant,
    after,
  }: {
    readonly tenant?: string
    readonly after?: string | undefined
  } = {}): AsyncGenerator<TokenRecord, void, void> {
    if (after !== undefined && !ID.test(after)) throw invalidArgument('after', 'is none that was given')
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

  /** Whether there is any at all. */
  async exist(): Promise<boolean> {
    return (await this.#db.kv.list(SCOPE, { limit: 1 })).length > 0
  }

  /** One that was not revoked, also if it has expired. */
  async get(id: string): Promise<TokenRecord | undefined> {
    const stored = ID.test(id) ? await this.#db.kv.get(SCOPE, id) : undefined
    return stored === undefined ? undefined : recordOf(stored)
  }

  /** Whether there was such a token; with `tenant`, one of that tenant. */
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

  /** The record of a token that is good now. Looked up each time: a token that was revoked is of no use from then on. */
  async verify(token: string): Promise<TokenRecord | undefined> {
    const [, id] = SHAPE.exec(token) ?? []
    const stored =
      id === undefined ? undefined : ((await this.#db.kv.get(SCOPE, id)) as StoredToken | undefined)
    // Compared also if there is nothing to compare with, so that the time tells nothing about ids.
    const expected = stored === undefined ? NOTHING : Buffer.from(stored.hash, 'hex')
    const isRight = timingSafeEqual(hashOf(token), expected)
    if (!isRight || stored === undefined) return undefined
    const record = recordOf(stored as unknown as Value)
    return record.expiresAt !== undefined && record.expiresAt <= this.#clock() ? undefined : record
  }

  /** The ids of tokens as they are revoked, from now on. */
  async *revocations(signal: AbortSignal): AsyncGenerator<string, void, void> {
    const from = await this.#db.events.length(SCOPE)
    for await (const { type, payload } of this.#db.events.tail(SCOPE, { from, signal })) {
      if (type === 'token_revoked') yield recordOf(payload).id
    }
  }
}

/** Of the same length as any other, and no token's. */
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
