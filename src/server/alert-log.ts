import { setMaxListeners } from 'node:events'
import type { Annals } from '../annals.ts'
import { pause } from '../core/pause.ts'
import type { ServerSettings } from './options.ts'

const RETRY_MS = 1_000

/** Writes a line to the server's log for each ledger alert of every active tenant. */
export class AlertLog {
  readonly #settings: ServerSettings
  readonly #stop = new AbortController()
  readonly #tenants = new Set<string>()

  constructor(settings: ServerSettings) {
    this.#settings = settings
    // Every followed tenant adds a listener, and there may be many tenants.
    setMaxListeners(0, this.#stop.signal)
  }

  /** Starts to follow the tenant of this handle. Calling it again has no effect. */
  follow(db: Annals): void {
    if (this.#settings.log === undefined || this.#tenants.has(db.tenant)) return
    this.#tenants.add(db.tenant)
    void this.#follow(db)
  }

  close(): void {
    this.#stop.abort()
  }

  async #follow({ tenant, ledger }: Annals): Promise<void> {
    const { signal } = this.#stop
    let cursor: string | undefined
    let isPlaced = false
    while (!signal.aborted) {
      try {
        if (!isPlaced) cursor = await ledger.lastAlertCursor()
        isPlaced = true
        const from = cursor === undefined ? {} : { cursor }
        for await (const item of ledger.subscribeAlerts({ ...from, signal })) {
          cursor = item.cursor
          this.#write({ message: 'an event that no transition allows', tenant, alert: item.alert })
        }
      } catch (error) {
        // Closing the store ends the subscription.
        if (signal.aborted || (error as { code?: unknown }).code === 'CLOSED') return
        this.#write({ message: 'cannot follow alerts', tenant, error: String(error) })
        await pause(RETRY_MS, { signal })
      }
    }
  }

  #write(line: Readonly<Record<string, unknown>>): void {
    const { log, clock } = this.#settings
    log?.(JSON.stringify({ time: new Date(clock()).toISOString(), ...line }))
  }
}
