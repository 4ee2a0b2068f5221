import { createHash } from 'node:crypto'
import type { Annals } from '../annals.ts'
import { AnnalsError } from '../core/errors.ts'
import { pause } from '../core/pause.ts'
import { jsonText, type Reply } from './reply.ts'
import { headerOf } from './request-header.ts'
import type { ServerContext } from './server-env.ts'
import { OWN_TENANT } from './tokens.ts'

const SCOPE = 'answers'
const DAY_MS = 86_400_000
const KEY = /^[\x21-\x7e]{1,255}$/
/** Longer answers are not stored: a value may have at most 16 MiB. */
const ANSWER_CHARS_MAX = 4 * 1024 * 1024

interface Answer {
  readonly asked: string
  readonly status: number
  readonly body: string
  readonly etag: string
}

/** A key whose request is in progress. */
interface Claim {
  readonly asked: string
  readonly claimedAt: number
}

/** After this time, a server that claimed a key is considered dead. */
const CLAIM_MS = 60_000
const POLL_MS = 25

/**
 * Makes writes with an `Idempotency-Key` idempotent. For a day, every server on the database answers the same request with the
 * stored answer and does not repeat the write. A key is claimed in the database before the write. If the server dies between the
 * write and storing the answer, the write runs again without harm: new records get an id derived from the key, and all other
 * writes are conditional.
 */
export class RememberedAnswers {
  readonly #forTenant: (tenant: string) => Annals
  readonly #clock: () => number
  readonly #underWay = new Map<string, Promise<unknown>>()

  constructor(forTenant: (tenant: string) => Annals, clock: () => number) {
    this.#forTenant = forTenant
    this.#clock = clock
  }

  /**
   * Returns the answer of this request, computed now or stored before. `asked` holds its parameters besides the body, to detect
   * a different request with the same key.
   */
  async once(
    c: ServerContext,
    asked: readonly unknown[],
    /** Receives an id derived from the key; undefined without a key. */
    answer: (id: string | undefined) => Promise<Reply>,
  ): Promise<Reply> {
    const key = headerOf(c, 'idempotency-key')
    if (key === undefined) return answer(undefined)
    if (!KEY.test(key)) {
      throw new AnnalsError('INVALID_ARGUMENT', 'Idempotency-Key must be 1 to 255 visible ASCII characters', {
        name: 'Idempotency-Key',
      })
    }
    const { tenant, tokenId = '' } = c.get('credential')
    const name = hashOf([tenant, tokenId, c.req.method, c.req.path, key])
    const request = hashOf([c.get('bodyHash') ?? '', ...asked.map(one => one ?? null)])
    // One at a time, so that the second request finds the answer of the first.
    while (this.#underWay.has(name)) await this.#underWay.get(name)
    const work = this.#answer(name, request, answer)
    this.#underWay.set(
      name,
      work.catch(() => undefined),
    )
    try {
      return await work
    } finally {
      this.#underWay.delete(name)
    }
  }

  async #answer(name: string, asked: string, answer: (id: string) => Promise<Reply>): Promise<Reply> {
    const db = this.#forTenant(OWN_TENANT)
    for (;;) {
      const known = await this.#claim(db, name, asked)
      if (known === undefined) break
      if (known.asked !== asked) {
        throw new AnnalsError('INVALID_ARGUMENT', 'this Idempotency-Key was used for another request', {
          name: 'Idempotency-Key',
        })
      }
      if ('body' in known) return replayed(known)
      // Another server is processing the request; waits for its answer.
      await pause(POLL_MS)
    }
    try {
      const reply = await answer(idOf(name))
      const { status, headers } = reply
      const body = textOf(reply)
      const given = { asked, status, etag: headers?.['ETag'] ?? '' }
      if (body !== undefined) await db.kv.put(SCOPE, name, { ...given, body }, { ttlMs: DAY_MS })
      return reply
    } catch (error) {
      // Releases the key: a refused request changed nothing, and a failed one may be repeated.
      await db.kv.delete(SCOPE, name)
      throw error
    }
  }

  /** Claims the key. Returns undefined on success, else the stored answer or the claim of another server. */
  #claim(db: Annals, name: string, asked: string): Promise<Answer | Claim | undefined> {
    return db.transaction(SCOPE, async tx => {
      const known = (await tx.kv.get(name)) as unknown as Answer | Claim | undefined
      const now = this.#clock()
      const isOurs = known === undefined || ('claimedAt' in known && known.claimedAt + CLAIM_MS <= now)
      if (!isOurs) return known
      const claim: Claim = { asked, claimedAt: now }
      await tx.kv.put(name, { ...claim }, { ttlMs: DAY_MS })
      return undefined
    })
  }
}

/** The body; undefined if it is too long to be stored. */
function textOf({ body }: Reply): string | undefined {
  if (typeof body === 'string') return body
  const chars = body.reduce((sum, piece) => sum + piece.length, 0)
  return chars <= ANSWER_CHARS_MAX ? body.join('') : undefined
}

/** A UUID (version 8, RFC 9562) derived from a hash. */
function idOf(hash: string): string {
  const variant = ((Number.parseInt(hash[16], 16) & 3) | 8).toString(16)
  return `${hash.slice(0, 8)}-${hash.slice(8, 12)}-8${hash.slice(13, 16)}-${variant}${hash.slice(17, 20)}-${hash.slice(20, 32)}`
}

function replayed({ status, body, etag }: Answer): Reply {
  return jsonText(body, status, { 'Idempotent-Replay': 'true', ...(etag === '' ? {} : { ETag: etag }) })
}

function hashOf(parts: readonly unknown[]): string {
  return createHash('sha256').update(JSON.stringify(parts), 'utf8').digest('hex')
}
