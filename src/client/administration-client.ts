import { all, pagesOf } from './pages.ts'
import { idPath } from './paths.ts'
import type { Transport } from './transport.ts'

/** The state of a launch; all fields are in docs/contracts/snapshot.schema.json. */
export interface LaunchStanding {
  /** The id of the launch. */
  readonly run_id: string
  /** The state that the launch is in, such as `DRAFTING`. */
  readonly run_state: string
  /** Work items, artifacts, issues and more. */
  readonly [name: string]: unknown
}

/** The launches of a server. */
export class LaunchesClient {
  readonly #transport: Transport

  /** @internal Use `createClient`. */
  constructor(transport: Transport) {
    this.#transport = transport
  }

  /** The ids of all launches, in alphabetical order. */
  async list(): Promise<readonly string[]> {
    return all(pagesOf<string>(this.#transport, '/v1/launches', 'launches'))
  }

  /** The state of a launch, from its log. `RUN_NOT_FOUND` if there is no such launch. */
  async state(runId: string): Promise<LaunchStanding> {
    return this.#transport.json(`/v1/launches/${idPath('runId', runId)}`)
  }

  /** Resumes a launch on the server. `LAUNCH_UNKNOWN` if the server does not have its definition. */
  async resume(runId: string, options: { readonly force?: boolean } = {}): Promise<void> {
    await this.#transport.ask(`/v1/launches/${idPath('runId', runId)}/resume`, {
      method: 'POST',
      json: options,
    })
  }

  /** Cancels a launch. */
  async cancel(runId: string, options: { readonly reason?: string } = {}): Promise<void> {
    await this.#transport.ask(`/v1/launches/${idPath('runId', runId)}/cancel`, {
      method: 'POST',
      json: options,
    })
  }
}

/** What a token may do. Each role includes the ones before it. */
export type TokenRole = 'reader' | 'writer' | 'admin'

/** The data of a token, without its secret. */
export interface Token {
  /** Identifies the token, for example to revoke it. */
  readonly id: string
  /** What the token is for; may be empty. */
  readonly name: string
  /** The tenant whose data the token reaches. */
  readonly tenant: string
  /** What the token may do. */
  readonly role: TokenRole
  /** Milliseconds since 1970. */
  readonly createdAt: number
  /** Milliseconds since 1970; absent for a token that does not expire. */
  readonly expiresAt?: number
}

/** Options of `TokensClient.create`. */
export interface NewToken {
  /** What the token is for, for people; up to 256 bytes. */
  readonly name?: string
  /** The tenant whose data the token reaches; default: that of the caller. */
  readonly tenant?: string
  /** What the token may do. */
  readonly role: TokenRole
  /** The lifetime in milliseconds; default: it does not expire. */
  readonly ttlMs?: number
}

/** The access tokens of a server. Every method needs the role `admin`. */
export class TokensClient {
  readonly #transport: Transport

  /** @internal Use `createClient`. */
  constructor(transport: Transport) {
    this.#transport = transport
  }

  /** Creates a token. Only the answer contains it, so the request is not retried; if the answer is lost, revoke the token. */
  async create(token: NewToken): Promise<Token & { readonly token: string }> {
    return this.#transport.json('/v1/tokens', { method: 'POST', json: token, isRepeatable: false })
  }

  /** The tokens that were not revoked, by creation time. */
  async list(): Promise<readonly Token[]> {
    const tokens = await all(pagesOf<Token>(this.#transport, '/v1/tokens', 'tokens'))
    return Object.freeze([...tokens].sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1)))
  }

  /** Revokes a token at once. Returns false if there is no such token. */
  async revoke(id: string): Promise<boolean> {
    const path = `/v1/tokens/${idPath('id', id)}`
    return (await this.#transport.json<{ readonly revoked: boolean }>(path, { method: 'DELETE' })).revoked
  }
}
