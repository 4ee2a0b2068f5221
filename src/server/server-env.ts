import type { HttpBindings } from '@hono/node-server'
import type { Annals } from 'annals'
import type { Context } from 'hono'
import type { Admission } from './admission.ts'
import type { Role } from './tokens.ts'

/** Who asks. */
export interface Credential {
  /** Of the token; undefined for who needs none. */
  readonly tokenId: string | undefined
  readonly tenant: string
  readonly role: Role
  readonly expiresAt?: number
}

/** What every handler finds in its context, the mounted ones too. */
export interface ServerEnv {
  /** Absent where requests come from a program, not from a socket. */
  Bindings: Partial<HttpBindings>
  Variables: {
    requestId: string
    credential: Credential
    /** The database as the one who asks sees it. */
    db: Annals
    /** @internal */
    admission: Admission
    /** Give back what the request has of slots and bytes. */
    held?: (() => void)[]
    /** Whether it has asked for a slot. */
    isHeavy?: boolean
    /** The SHA-256 of the body, in requests with an `Idempotency-Key`. */
    bodyHash?: string
    /** The answer has the id of its request already. */
    isNamed?: boolean
    /** The template of the path, for counting. */
    route?: string
    /** Why it was refused, for the log. */
    failure?: { readonly code: string; readonly text: string }
  }
}

export type ServerContext = Context<ServerEnv>
