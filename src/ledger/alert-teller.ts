import { inspect } from 'node:util'
import { AnnalsError } from '../core/errors.ts'
import { pause } from '../core/pause.ts'
import { alertPage, followAlerts } from './alert-subscriptions.ts'
import type { LedgerContext, OnAlert } from './context.ts'
import { alertCount } from './raised-alerts.ts'
import type { LedgerAlert } from './run-events.ts'

/** The pause after alerts could not be read. */
const RETRY_MS = 1_000
/** The longest time that closing a store waits for `onAlert`. */
const CLOSE_MS = 5_000

/**
 * Calls `onAlert` once for each alert that is raised while the store is open, one call at a time. It counts the existing
 * alerts, then follows new ones, and is closed before the store is. It reads the stored alerts like any subscriber. So it
 * includes alerts that other processes raise, and a slow or failing `onAlert` does not delay the projector.
 */
export class AlertTeller {
  readonly #context: LedgerContext
  readonly #onAlert: OnAlert
  /** Not shared between tellers, because a signal keeps all its listeners in memory. */
  readonly #end = new AbortController()
  #from: Promise<number> | undefined
  #following: Promise<void> | undefined
  /** Set when `close` gives up waiting: `onAlert` is not called any more. */
  #isOver = false

  constructor(context: LedgerContext, onAlert: OnAlert) {
    this.#context = context
    this.#onAlert = onAlert
  }

  /** Resolves to the number of alerts that already existed. This store's projector raises no alert before that. */
  counted(): Promise<number> {
    this.#from ??= alertCount(this.#context).catch(error => {
      this.#from = undefined
      throw error
    })
    return this.#from
  }

  /** Starts following new alerts. */
  start(): void {
    if (!this.#end.signal.aborted) this.#following ??= this.#follow()
  }

  /** Resolves once `onAlert` was called for all alerts raised so far, or after `CLOSE_MS`. */
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
        // `close` was called: deliver the remaining alerts.
        for (const { alert } of await alertPage(this.#context, last, Number.POSITIVE_INFINITY)) {
          if (this.#isOver) return
          await this.#tell(alert)
        }
        return
      } catch (error) {
        if (error instanceof AnnalsError && error.code === 'CLOSED') return
        warn(`reading alerts failed and will be retried: ${error}`)
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
      // A thrown value need not be an error, and converting it with String() may itself throw.
      const what = error instanceof Error ? String(error) : inspect(error, { customInspect: false })
      warn(`onAlert failed for event ${eventId} of run ${JSON.stringify(runId)}: ${what}`)
    }
  }
}

function warn(message: string): void {
  process.emitWarning(message, { type: 'AnnalsWarning' })
}
