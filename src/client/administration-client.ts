import { all, pagesOf } from './pages.ts'
import { idPath } from './paths.ts'
import type { Transport } from './transport.ts'

/** How an orchestrated run stands. */
export interface LaunchStanding {
  readonly run_id: string
  readonly run_state: string
  readonly [name: string]: unknown
}

/** The orchestrated runs that a server knows. */
export class LaunchesClient {
  readonly #transport: Transport

  /** @internal Use `createClient`. */
  constructor(transport: Transport) {
    this.#transport = transport
  }

  /** The ids of all runs, in the order of their names. */
  async list(): Promise<readonly string[]> {
    return all(
      pagesOf<string>(this.#transport, '/v1/launches', 'launches', { limit: undefined, place: 'after' }),
    )
  }

  async state(runId: string): Promise<LaunchStanding> {
    return this.#transport.json(`/v1/launches/${idPath('runId', runId)}`)
  }

  /** Goes on with a run; `LAUNCH_UNKNOWN` if the server has no definition of it. */
  async resume(runId: string, options: { readonly force?: boolean } = {}): Promise<void> {
    await this.#transport.ask(`/v1/launches/${idPath('runId', runId)}/resume`, {
      method: 'POST',
      json: options,
    })
  }

  async cancel(runId: string, options: { readonly reason?: string } = {}): Promise<void> {
    await this.#transport.ask(`/v1/launches/${idPath('runId', runId)}/cancel`, {
      method: 'POST',
      json: options,
    })
  }
}

export type TokenRole = 'reader' | 'writer' | 'admin'

export interface Token {
  readonly id: string
  readonly name: string
  readonly tenant: string
  readonly role: TokenRole
  readonly createdAt: number
  readonly expiresAt?: number
}

export interface NewToken {
  readonly name?: string
  readonly tenant?: string
  readonly role: TokenRole
  readonly ttlMs?: number
}

/** The tokens of a server; for admins. */
export class TokensClient {
  readonly #transport: Transport

  /** @internal Use `createClient`. */
  constructor(transport: Transport) {
    this.#transport = transport
  }

  /** Makes a token. It is in the answer alone, so it is asked for once: if that is lost, revoke what `list` shows. */
  async create(token: NewToken): Promise<Token & { readonly token: string }> {
    return this.#transport.json('/v1/tokens', { method: 'POST', json: token, isRepeatable: false })
  }

  /** In the order in which they were made. */
  async list(): Promise<readonly Token[]> {
    const tokens = await all(
      pagesOf<Token>(this.#transport, '/v1/tokens', 'tokens', { limit: undefined, place: 'after' }),
    )
    return Object.freeze([...tokens].sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1)))
  }

  /** Whether there was such a token. */
  async revoke(id: string): Promise<boolean> {
    const path = `/v1/tokens/${idPath('id', id)}`
    return (await this.#transport.json<{ readonly revoked: boolean }>(path, { method: 'DELETE' })).revoked
  }
}
