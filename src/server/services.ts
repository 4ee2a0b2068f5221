import type { Annals } from '../annals.ts'
import { Admission } from './admission.ts'
import { AlertLog } from './alert-log.ts'
import { RequestMetrics } from './metrics.ts'
import { OpenStreams } from './open-streams.ts'
import type { ServerSettings } from './options.ts'
import { RateLimit } from './rate-limit.ts'
import { RememberedAnswers } from './remembered.ts'
import { TokenStore } from './tokens.ts'

/** The most tenant handles in the cache. Tenants come from our own tokens, so there are as many as active tenants. */
const HANDLES_MAX = 1_000

/** Everything that the routes of one server share. */
export class Services {
  readonly db: Annals
  readonly settings: ServerSettings
  readonly tokens: TokenStore
  readonly admission: Admission
  readonly metrics: RequestMetrics
  readonly rateLimit: RateLimit | undefined
  readonly answers: RememberedAnswers
  readonly streams: OpenStreams
  readonly #alertLog: AlertLog
  /** True once the server has begun to close. */
  isClosing = false
  readonly #handles = new Map<string, Annals>()

  constructor(db: Annals, settings: ServerSettings) {
    this.db = db
    this.settings = settings
    this.admission = new Admission(settings)
    this.metrics = new RequestMetrics(this.admission)
    this.tokens = new TokenStore(db, settings.clock)
    const { rateLimit, clock } = settings
    this.rateLimit = rateLimit === undefined ? undefined : new RateLimit(rateLimit.perMinute, clock)
    this.answers = new RememberedAnswers(tenant => this.forTenant(tenant), clock)
    this.streams = new OpenStreams(settings, this.tokens, this.metrics)
    this.#alertLog = new AlertLog(settings)
    this.#alertLog.follow(db)
  }

  /** Ends the streams and makes the server refuse new requests. */
  close(): void {
    this.isClosing = true
    this.streams.close()
    this.#alertLog.close()
  }

  /** The handles of all tenants that sent requests since the server was started. */
  handles(): readonly Annals[] {
    return [this.db, ...this.#handles.values()]
  }

  /** The database as a tenant sees it. */
  forTenant(tenant: string): Annals {
    if (tenant === this.db.tenant) return this.db
    const known = this.#handles.get(tenant)
    if (known !== undefined) return known
    if (this.#handles.size === HANDLES_MAX) this.#handles.clear()
    const handle = this.db.forTenant(tenant)
    this.#handles.set(tenant, handle)
    this.#alertLog.follow(handle)
    return handle
  }
}
