import { inspect } from 'node:util'
import { AnnalsError } from '../core/errors.ts'
import { pause } from '../core/pause.ts'
import { alertPage, followAlerts } from './alert-subscriptions.ts'
import type { LedgerContext, OnAlert } from './context.ts'
import { alertCount } from './raised-alerts.ts'
import type { LedgerAlert } from './run-events.ts'

const RETRY_MS = 1_000
/** How long a store that is closed waits for `onAlert` at most. */
const CLOSE_MS = 5_000

/**
 * Calls `onAlert` for each alert that is raised while the store is open, once, one after the other: counted (how many alerts
 * there are by now) → following → closed before the store is. It reads the stored alerts, as any subscriber does. So it hears
 * of what other processes raise, and neither a slow nor a failing `onAlert` holds up the projector.
 */
export class AlertTeller {
  readonly #context: LedgerContext
  readonly #onAlert: OnAlert
  /** One for each teller, because a signal keeps what waits for it. */
  readonly #end = new AbortController()
  #from: Promise<number> | undefined
  #following: Promise<void> | undefined
  /** Nothing is told any more, whatever was raised. */
  #isOver = false

  constructor(context: LedgerContext, onAlert: OnAlert) {
    this.#context = context
    this.#onAlert = onAlert
  }

  /** Resolves once it is known which alerts were there before. The projector raises none of its own until then. */
  counted(): Promise<number> {
    this.#from ??= alertCount(this.#context).catch(error => {
      this.#from = undefined
      throw error
    })
    return this.#from
  }

  start(): void {
    if (!this.#end.signal.aborted) this.#following ??= this.#follow()
  }

  /** Resolves once every alert that was raised by now has been told, or after a while. */
  async close(): Promise<void> {
    this.#end.abort()
    const told = new AbortController()
    await Promise.race([this.#following, pause(CLOSE_MS, { signal: told.signal })])
    told.abort()
    this.#isOver = true
  }

  async #follow(): Promise<void> {
    const { signal } = this.#end
    let last: number | undefined
    for (;;) {
      try {
        last ??= await this.counted()
        for await (const { alert, cursor } of followAlerts(this.#context, last, signal)) {
          last = Number(cursor)
          await this.#tell(alert)
        }
        // The store is about to be closed.
        for (const { alert } of await alertPage(this.#context, last, Number.POSITIVE_INFINITY)) {
          if (this.#isOver) return
          await this.#tell(alert)
        }
        return
      } catch (error) {
        if (error instanceof AnnalsError && error.code === 'CLOSED') return
        warn(`alerts can't be read, and will be read again: ${error}`)
      }
      if (signal.aborted) return
      await pause(RETRY_MS, { signal })
    }
  }

  async #tell(alert: LedgerAlert): Promise<void> {
    try {
      await this.#onAlert(alert)
    } catch (error) {
      const { eventId, runId } = alert
      // Anything can be thrown, also what has no text of its own.
      const what = error instanceof Error ? String(error) : inspect(error, { customInspect: false })
      warn(`onAlert failed for event ${eventId} of run ${JSON.stringify(runId)}: ${what}`)
    }
  }
}

function warn(message: string): void {
  process.emitWarning(message, { type: 'AnnalsWarning' })
}
