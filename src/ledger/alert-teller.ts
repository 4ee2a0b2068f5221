import { AnnalsError } from '../core/errors.ts'
import { pause } from '../core/pause.ts'
import { followAlerts } from './alert-subscriptions.ts'
import type { LedgerContext, OnAlert } from './context.ts'
import { alertCount } from './raised-alerts.ts'
import type { LedgerAlert } from './run-events.ts'

const RETRY_MS = 1_000

/**
 * Calls `onAlert` for each alert that is raised while the store is open, once, one after the other: counted (how many alerts
 * there are by now) → following → ended with the store. It reads the stored alerts, as any subscriber does. So it hears of
 * what other processes raise, and neither a slow nor a failing `onAlert` holds up the projector.
 */
export class AlertTeller {
  readonly #context: LedgerContext
  readonly #onAlert: OnAlert
  /** Never aborted: following ends when the store is closed. One for each, because a signal keeps what waits for it. */
  readonly #never = new AbortController().signal
  #from: Promise<number> | undefined
  #isFollowing = false

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
    if (this.#isFollowing) return
    this.#isFollowing = true
    void this.#follow()
  }

  async #follow(): Promise<void> {
    let last: number | undefined
    for (;;) {
      try {
        last ??= await this.counted()
        for await (const { alert, cursor } of followAlerts(this.#context, last, this.#never)) {
          last = Number(cursor)
          await this.#tell(alert)
        }
        return
      } catch (error) {
        if (error instanceof AnnalsError && error.code === 'CLOSED') return
        warn(`alerts can't be read, and will be read again: ${error}`)
      }
      await pause(RETRY_MS)
    }
  }

  async #tell(alert: LedgerAlert): Promise<void> {
    try {
      await this.#onAlert(alert)
    } catch (error) {
      const { eventId, runId } = alert
      warn(`onAlert failed for event ${eventId} of run ${JSON.stringify(runId)}: ${error}`)
    }
  }
}

function warn(message: string): void {
  process.emitWarning(message, { type: 'AnnalsWarning' })
}
