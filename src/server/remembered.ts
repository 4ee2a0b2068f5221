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
/** A value has at most 16 MiB; what is longer is not remembered. */
const ANSWER_CHARS_MAX = 4 * 1024 * 1024

interface Answer {
  readonly asked: string
  readonly status: number
  readonly body: string
  readonly etag: string
}

/** A key that somebody is at work on; its answer is not there yet. */
interface Claim {
  readonly asked: string
  readonly claimedAt: number
}

/** After so long whoever claimed a key is taken to have died. */
const CLAIM_MS = 60_000
const POLL_MS = 25

/**
 * Answers to writes that name themselves with `Idempotency-Key`: for a day, the same request is answered as it was, and not
 * done again, by whichever server on the database. A key is claimed in the database before anything is done. If the
 * server dies between doing and remembering, the request is judged anew: what it makes is made under an id that
 * follows from the key, and the rest is conditional, so nothing is done twice.
 */
export class RememberedAnswers {
  readonly #forTenant: (tenant: string) => Annals
  readonly #clock: () => number
  readonly #underWay = new Map<string, Promise<unknown>>()

  constructor(forTenant: (tenant: string) => Annals, clock: () => number) {
    this.#forTenant = forTenant
    this.#clock = clock
  }

  /** What `answer` gives, or has given. `asked` is what the request asks for beside its body, to tell another one under its key. */
  async once(
    c: ServerContext,
    asked: readonly unknown[],
    /** Is given an id that follows from the key; undefined without one. */
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
    // One after the other: the second finds the answer of the first.
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
      // Another server is at work on it: its answer is waited for.
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
      // What was refused has changed nothing, and may be tried again; what failed, is judged anew.
      await db.kv.delete(SCOPE, name)
      throw error
    }
  }

  /** Undefined if the key is ours now; else what is known of it. */
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

/** The body, unless it is too long to be remembered. */
function textOf({ body }: Reply): string | undefined {
  if (typeof body === 'string') return body
  const chars = body.reduce((sum, piece) => sum + piece.length, 0)
  return chars <= ANSWER_CHARS_MAX ? body.join('') : undefined
}

/** A UUID (version 8, RFC 9562) of a hash. */
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
