import { type ByteString, u64 } from '../core/bytes.ts'
import { pages } from '../engine/pages.ts'
import type { Reader } from '../engine/storage.ts'
import type { LedgerContext } from './authority.ts'
import { loadProjection, unprojectedRuns } from './projector.ts'
import type { LedgerAlert } from './run-events.ts'
import { alertIn, alertsIn, LOG, listedAlert, placeOf, projectableIn } from './stored.ts'

/**
 * The alerts of a run in their order, or of all runs by time: those that the projector has stored, and, where nobody
 * projects because the store is only read, those that it would store.
 */
export function alertsFrom(
  context: LedgerContext,
  runId: string | undefined,
  readOnly: boolean,
): Promise<readonly LedgerAlert[]> {
  const { database, scopeOf } = context
  return database.view(async reader => {
    const stored = await (runId === undefined
      ? storedOfAll(reader, context)
      : storedOf(reader, scopeOf(runId)))
    if (!readOnly) return Object.freeze(oncePerEvent(stored))
    const runIds = runId === undefined ? await unprojectedRuns(reader, context) : [runId]
    for (const each of runIds) stored.push(...(await unprojectedOf(reader, scopeOf(each), each)))
    return Object.freeze(oncePerEvent(runId === undefined ? stored.sort(byTime) : stored))
  })
}

async function storedOf(reader: Reader, scope: ByteString): Promise<LedgerAlert[]> {
  const alerts: LedgerAlert[] = []
  for await (const page of pages(reader, alertsIn(scope))) {
    for (const entry of page) alerts.push(alertIn(entry) as LedgerAlert)
  }
  return alerts
}

async function storedOfAll(reader: Reader, { shared, scopeOf }: LedgerContext): Promise<LedgerAlert[]> {
  const alerts: LedgerAlert[] = []
  for await (const page of pages(reader, alertsIn(shared))) {
    for (const entry of page) {
      const { runId, key } = listedAlert(entry)
      const place = placeOf(scopeOf(runId), key)
      const alert = alertIn(await reader.get(place.scope, place.tag, place.key))
      // Listed, but its run was deleted since.
      if (alert !== undefined) alerts.push(alert)
    }
  }
  return alerts
}

async function unprojectedOf(
  reader: Reader,
  scope: ByteString,
  runId: string,
): Promise<readonly LedgerAlert[]> {
  const projection = await loadProjection(reader, scope, runId)
  for await (const page of pages(reader, { scope, tag: LOG, from: u64(projection.lastSeq) })) {
    for (const entry of page) projection.take(projectableIn(entry))
  }
  return projection.unstoredAlerts
}

function byTime(a: LedgerAlert, b: LedgerAlert): number {
  if (a.persistedAt !== b.persistedAt) return a.persistedAt < b.persistedAt ? -1 : 1
  if (a.runId !== b.runId) return a.runId < b.runId ? -1 : 1
  return a.runSeq - b.runSeq
}

/** L30: an event id that came twice has one alert. */
function oncePerEvent(alerts: readonly LedgerAlert[]): LedgerAlert[] {
  const seen = new Set<string>()
  return alerts.filter(({ runId, eventId }) => {
    const name = `${eventId.toLowerCase()} ${runId}`
    if (seen.has(name)) return false
    seen.add(name)
    return true
  })
}
