import { ShardedMap } from '../core/sharded-map.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { formatRfc3339 } from '../core/time.ts'
import { pages } from '../engine/pages.ts'
import type { Reader } from '../engine/storage.ts'
import type { RunName, RunScopes } from '../primitives/run-scopes.ts'
import type { LedgerContext } from './context.ts'
import { byTime } from './position.ts'
import { readProjection, unprojectedRuns } from './projector.ts'
import type { LedgerAlert } from './run-events.ts'
import { alertIn, alertsIn, type ListedAlert, listedAlert, placeOf } from './stored.ts'

/**
 * Lists the alerts of a run in order, or of all runs by time. A read-only store has no projector, so the list then includes
 * the alerts that the projector would raise.
 */
export function alertsFrom(
  context: LedgerContext,
  run: RunName | undefined,
  readOnly: boolean,
): Promise<readonly LedgerAlert[]> {
  const { database, scopes } = context
  return database.view(async reader => {
    const alerts: LedgerAlert[] = []
    for await (const alert of storedAlerts(reader, context, run)) alerts.push(alert)
    if (!readOnly) return Object.freeze(alerts)
    const unprojected =
      run === undefined ? await unprojectedRuns(reader, context) : [await scopes.find(reader, run)]
    for (const scope of unprojected) {
      const { pendingAlerts } = await readProjection(reader, scope)
      for (const { alert } of pendingAlerts) alerts.push(alert)
    }
    return oncePerEvent(run === undefined ? alerts.sort(byTime) : alerts)
  })
}

/** Yields the stored alerts. They are read as the caller iterates. */
export async function* iterateAlerts(
  context: LedgerContext,
  run: RunName | undefined,
): AsyncGenerator<LedgerAlert, void, void> {
  yield* storedAlerts(context.database, context, run)
}

async function* storedAlerts(
  reader: Reader,
  { shared, scopes }: LedgerContext,
  run: RunName | undefined,
): AsyncGenerator<LedgerAlert, void, void> {
  const scope = run === undefined ? shared : await scopes.find(reader, run)
  for await (const page of pages(reader, alertsIn(scope))) {
    for (const entry of page) {
      if (isSliceOver()) await nextSlice()
      const alert = run === undefined ? await alertListed(reader, scopes, listedAlert(entry)) : alertIn(entry)
      // The list keeps entries of deleted runs.
      if (alert !== undefined) yield alert
    }
  }
}

/** Reads the alert of a list entry; undefined if its run was deleted. */
export async function alertListed(
  reader: Reader,
  scopes: RunScopes,
  { runId, key, time }: ListedAlert,
): Promise<LedgerAlert | undefined> {
  const place = placeOf(await scopes.find(reader, { runId, scope: undefined }), key)
  const alert = alertIn(await reader.get(place.scope, place.tag, place.key))
  // An alert with another time belongs to a later run with the same id, and has its own list entry.
  return alert?.persistedAt === formatRfc3339(time) ? alert : undefined
}

async function oncePerEvent(alerts: readonly LedgerAlert[]): Promise<readonly LedgerAlert[]> {
  const isFirst = firstOfEvent()
  const once: LedgerAlert[] = []
  for (const alert of alerts) {
    if (isSliceOver()) await nextSlice()
    if (isFirst(alert)) once.push(alert)
  }
  return Object.freeze(once)
}

/** Makes a filter that accepts one alert per run and event id (L30). */
function firstOfEvent(): (alert: LedgerAlert) => boolean {
  const seen = new ShardedMap<string, true>()
  return ({ runId, eventId }) => {
    const name = `${eventId.toLowerCase()} ${runId}`
    if (seen.has(name)) return false
    seen.set(name, true)
    return true
  }
}
