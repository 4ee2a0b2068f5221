import { invalidArgument } from '../core/errors.ts'
import { Changes } from '../engine/changes.ts'
import { pages } from '../engine/pages.ts'
import type { Reader } from '../engine/storage.ts'
import { alertListed } from './alerts.ts'
import type { LedgerContext } from './context.ts'
import { alertCount } from './raised-alerts.ts'
import type { LedgerAlert } from './run-events.ts'
import { alertTree, numberedAlert, numberedAlertsFrom } from './stored.ts'
import { wakings } from './subscriptions.ts'

/** An alert with its cursor. */
export interface AlertItem {
  /** The alert. */
  readonly alert: LedgerAlert
  /** Pass it to `subscribeAlerts` to continue after this alert, in this process or a later one. */
  readonly cursor: string
}

/** Yields the stored alerts after a number, in the order in which they were raised. */
async function* raisedBehind(
  reader: Reader,
  { shared, scopes }: LedgerContext,
  after: number,
): AsyncGenerator<{ readonly number: number; readonly item: AlertItem | undefined }, void, void> {
  for await (const page of pages(reader, numberedAlertsFrom(shared, after + 1))) {
    for (const entry of page) {
      const { number, listed } = numberedAlert(entry)
      const alert = await alertListed(reader, scopes, listed)
      // The item is undefined if the run was deleted since.
      yield { number, item: alert && Object.freeze({ alert, cursor: String(number) }) }
    }
  }
}

/** Returns up to `limit` alerts after a number. */
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

/** Yields the alerts after a number, then new ones as any process raises them. */
export async function* followAlerts(
  context: LedgerContext,
  after: number,
  end: AbortSignal,
): AsyncGenerator<AlertItem, void, void> {
  const { database, shared } = context
  let last = after
  // Watching starts before the first read, so that no alert is missed in between.
  for await (const _ of wakings(await Changes.of(database, alertTree(shared)), end)) {
    for await (const { number, item } of raisedBehind(database, context, last)) {
      last = number
      if (item !== undefined) yield item
      if (end.aborted) return
    }
  }
}

const CURSOR = /^\d{1,15}$/

/** Returns the number that a cursor stands for, or throws `INVALID_ARGUMENT` if this ledger can't have given it. */
export async function alertNumberOf(context: LedgerContext, cursor: unknown): Promise<number> {
  if (cursor === undefined) return 0
  const number = typeof cursor === 'string' && CURSOR.test(cursor) ? Number(cursor) : Number.NaN
  // A larger number belongs to another store, or to a state of this one that was lost in a restore.
  if (number <= (await alertCount(context))) return number
  throw invalidArgument('cursor', 'was not given by subscribeAlerts of this store: start without one', cursor)
}
