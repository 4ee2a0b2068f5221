import { createHash } from 'node:crypto'
import type { Annals } from '../annals.ts'
import { AnnalsError } from '../core/errors.ts'
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

/**
 * Answers to writes that name themselves with `Idempotency-Key`: for a day, the same request is answered as it was,
 * and not done again. If the server dies between doing and remembering, it is judged anew; what it does is
 * conditional (a run that is new, a version that is expected), so it is not done twice then either, but refused.
 */
export class RememberedAnswers {
  readonly #forTenant: (tenant: string) => Annals
  readonly #underWay = new Map<string, Promise<unknown>>()

  constructor(forTenant: (tenant: string) => Annals) {
    this.#forTenant = forTenant
  }

  /** What `answer` gives, or has given. `body` is what was asked, to tell another request under the same key. */
  async once(c: ServerContext, body: unknown, answer: () => Promise<Reply>): Promise<Reply> {
    const key = headerOf(c, 'idempotency-key')
    if (key === undefined) return answer()
    if (!KEY.test(key)) {
      throw new AnnalsError('INVALID_ARGUMENT', 'Idempotency-Key must be 1 to 255 visible ASCII characters', {
        name: 'Idempotency-Key',
      })
    }
    const { tenant, tokenId = '' } = c.get('credential')
    const name = hashOf([tenant, tokenId, c.req.method, c.req.path, key])
    const asked = hashOf([body ?? null])
    // One after the other: the second finds the answer of the first.
    while (this.#underWay.has(name)) await this.#underWay.get(name)
    const work = this.#answer(name, asked, answer)
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

  async #answer(name: string, asked: string, answer: () => Promise<Reply>): Promise<Reply> {
    const { kv } = this.#forTenant(OWN_TENANT)
    const known = (await kv.get(SCOPE, name)) as unknown as Answer | undefined
    if (known !== undefined) {
      if (known.asked === asked) return replayed(known)
      throw new AnnalsError('INVALID_ARGUMENT', 'this Idempotency-Key was used for another request', {
        name: 'Idempotency-Key',
      })
    }
    // What is refused is thrown, and not remembered.
    const reply = await answer()
    const { status, body, headers } = reply
    const given: Answer = { asked, status, body, etag: headers['ETag'] ?? '' }
    if (body.length <= ANSWER_CHARS_MAX) await kv.put(SCOPE, name, { ...given }, { ttlMs: DAY_MS })
    return reply
  }
}

function replayed({ status, body, etag }: Answer): Reply {
  return jsonText(body, status, { 'Idempotent-Replay': 'true', ...(etag === '' ? {} : { ETag: etag }) })
}

function hashOf(parts: readonly unknown[]): string {
  return createHash('sha256').update(JSON.stringify(parts), 'utf8').digest('hex')
}
