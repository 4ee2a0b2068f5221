import type { ByteString } from './core/bytes.ts'
import { appShared, resolveScope, type Scope, tenantShared } from './engine/keys.ts'
import { RunScopes } from './primitives/run-scopes.ts'

/** The app whose scope holds the data of the telemetry service, so that its writes do not wait for others. */
const TELEMETRY_APP = 'telemetry'
/** How many encoded scopes a handle caches. */
const SCOPES_MAX = 1_000

/** The scopes of one tenant as bytes. */
export class TenantScopes {
  /** The scope of the run index, which all apps of the tenant share. */
  readonly shared: ByteString
  /** The scope of the telemetry service. */
  readonly telemetry: ByteString
  /** The scopes in which runs live. */
  readonly runs: RunScopes
  readonly #tenant: string
  /** A cache: run id → scope in app and agent `default`. */
  readonly #known = new Map<string, ByteString>()

  constructor(tenant: string) {
    this.#tenant = tenant
    this.shared = this.of(tenantShared({ tenant }))
    this.telemetry = this.of(appShared({ tenant, app: TELEMETRY_APP }))
    this.runs = new RunScopes(tenant, this.shared, scope => this.of(scope))
  }

  /** The bytes of a scope. Throws `INVALID_ARGUMENT` for an invalid scope, or one of another tenant. */
  of(scope: Scope): ByteString {
    if (typeof scope !== 'string') return resolveScope(this.#tenant, scope)
    const known = this.#known.get(scope)
    if (known !== undefined) return known
    const bytes = resolveScope(this.#tenant, scope)
    if (this.#known.size === SCOPES_MAX) this.#known.clear()
    this.#known.set(scope, bytes)
    return bytes
  }
}
