import { AnnalsError } from '../core/errors.ts'
import { Changes } from '../engine/changes.ts'
import { pages } from '../engine/pages.ts'
import type { Reader } from '../engine/storage.ts'
import { alertListed } from './alerts.ts'
import type { LedgerContext } from './context.ts'
import { alertCount } from './raised-alerts.ts'
import type { LedgerAlert } from './run-events.ts'
import { alertTree, numberedAlert, numberedAlertsFrom } from './stored.ts'
import { wakings } from './subscriptions.ts'

/** An alert, and from where to go on after it. */
export interface AlertItem {
  readonly alert: LedgerAlert
  /** Kept by the reader, it survives restarts. */
  readonly cursor: string
}

/** The alerts behind a number that are there, in the order in which they were raised. */
async function* raisedBehind(
  reader: Reader,
  { shared, scopes }: LedgerContext,
  after: number,
): AsyncGenerator<{ readonly number: number; readonly item: AlertItem | undefined }, void, void> {
  for await (const page of pages(reader, numberedAlertsFrom(shared, after + 1))) {
    for (const entry of page) {
      const { number, listed } = numberedAlert(entry)
      const alert = await alertListed(reader, scopes, listed)
      // An alert without a run: the run was deleted since.
      yield { number, item: alert && Object.freeze({ alert, cursor: String(number) }) }
    }
  }
}

/** As many as are asked for, from behind a number on. */
export async function alertPage(
  context: LedgerContext,
  after: number,
  limit: number,
): Promise<readonly AlertItem[]> {
  const items: AlertItem[] = []
  for await (const { item } of raisedBehind(context.database, context, after)) {
    if (item !== undefined && items.push(item) === limit) break
  }
  return items
}

/** The alerts behind a number, then new ones as they are raised, by whichever process. */
export async function* followAlerts(
  context: LedgerContext,
  after: number,
  end: AbortSignal,
): AsyncGenerator<AlertItem, void, void> {
  const { database, shared } = context
  let last = after
  // Before the first read, so that nothing is missed in between.
  for await (const _ of wakings(await Changes.of(database, alertTree(shared)), end)) {
    for await (const { number, item } of raisedBehind(database, context, last)) {
      last = number
      if (item !== undefined) yield item
      if (end.aborted) return
    }
  }
}

const CURSOR = /^\d{1,15}$/

/** The number that a cursor stands for. One that this ledger can't have given is refused. */
export async function alertNumberOf(context: LedgerContext, cursor: unknown): Promise<number> {
  if (cursor === undefined) return 0
  const number = typeof cursor === 'string' && CURSOR.test(cursor) ? Number(cursor) : Number.NaN
  // Of another store, or of a later state of this one, from before it was restored.
  if (number <= (await alertCount(context))) return number
  const message = 'cursor is none that subscribeAlerts of this store has given: begin without one'
  throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'cursor', value: cursor })
}
