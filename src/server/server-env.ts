import type { HttpBindings } from '@hono/node-server'
import type { Annals } from 'annals'
import type { Context } from 'hono'
import type { Admission } from './admission.ts'
import type { Role } from './tokens.ts'

/** The authenticated caller of a request. */
export interface Credential {
  /** The id of the token; undefined without a token. */
  readonly tokenId: string | undefined
  /** The tenant whose data the caller reaches. */
  readonly tenant: string
  /** What the caller may do. */
  readonly role: Role
  /** When the token expires, in milliseconds since 1970; absent if it does not. */
  readonly expiresAt?: number
}

/** The types of the Hono context of every handler, including those of the option `routes`. */
export interface ServerEnv {
  /** Node's request and response; absent for requests without a socket. */
  Bindings: Partial<HttpBindings>
  /** Variables that the guard sets before a handler runs. */
  Variables: {
    /** Identifies the request in the log. */
    requestId: string
    /** The caller. */
    credential: Credential
    /** The database of the caller's tenant. */
    db: Annals
    /** @internal */
    /** Limits heavy work. */
    admission: Admission
    /** Functions that release the slots and bytes of the request. */
    held?: (() => void)[]
    /** Whether the request has asked for a slot. */
    isHeavy?: boolean
    /** The SHA-256 of the body; only with an `Idempotency-Key`. */
    bodyHash?: string
    /** Whether the response has the common headers. */
    isNamed?: boolean
    /** The template of the path, for the metrics. */
    route?: string
    /** Why the request failed, for the log. */
    failure?: { readonly code: string; readonly text: string }
  }
}

export type ServerContext = Context<ServerEnv>
