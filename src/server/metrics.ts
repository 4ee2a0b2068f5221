import type { Annals } from '../annals.ts'

const BOUNDS_SECONDS: readonly number[] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10]

interface Timing {
  count: number
  sumSeconds: number
  /** How many took more than the bound before and at most this one. */
  readonly within: number[]
}

/** What a server counts: requests by route and status, never by path, of which there are as many as callers like. */
export class RequestMetrics {
  readonly #requests = new Map<string, number>()
  readonly #timings = new Map<string, Timing>()
  openStreams = 0
  streamsStalled = 0

  add(method: string, route: string, status: number, ms: number): void {
    const name = `method="${method}",route="${escaped(route)}"`
    const key = `${name},status="${status}"`
    this.#requests.set(key, (this.#requests.get(key) ?? 0) + 1)
    const timing = this.#timings.get(name) ?? { count: 0, sumSeconds: 0, within: BOUNDS_SECONDS.map(() => 0) }
    this.#timings.set(name, timing)
    const seconds = ms / 1_000
    timing.count++
    timing.sumSeconds += seconds
    const index = BOUNDS_SECONDS.findIndex(bound => seconds <= bound)
    if (index >= 0) timing.within[index]++
  }

  /** The text format of Prometheus, version 0.0.4. */
  text(db: Annals): string {
    const lines = [
      '# HELP annals_http_requests_total Requests that were answered.',
      '# TYPE annals_http_requests_total counter',
    ]
    for (const [name, count] of this.#requests) lines.push(`annals_http_requests_total{${name}} ${count}`)
    lines.push(
      '# HELP annals_http_request_duration_seconds Time from a request to the head of its answer.',
      '# TYPE annals_http_request_duration_seconds histogram',
    )
    for (const [name, timing] of this.#timings) {
      lines.push(...histogram('annals_http_request_duration_seconds', name, timing))
    }
    lines.push(
      ...gauge('annals_http_open_streams', 'Event streams that are open.', this.openStreams),
      ...counter(
        'annals_http_streams_stalled_total',
        'Streams that were closed as nobody read.',
        this.streamsStalled,
      ),
      ...ledgerLines(db),
      ...gauge('process_resident_memory_bytes', 'Resident memory of the server.', process.memoryUsage.rss()),
    )
    return `${lines.join('\n')}\n`
  }
}

function ledgerLines(db: Annals): readonly string[] {
  const { appended, duplicates, divergentDuplicates, rejected, fenced, alerts, projector, appendLatency } =
    db.stats().ledger
  const within = appendLatency.buckets.map(({ leMs, count }) => [leMs / 1_000, count] as const)
  return [
    ...counter('annals_ledger_appended_total', 'Records written.', appended),
    ...counter('annals_ledger_duplicates_total', 'Appends that were known already.', duplicates),
    ...counter(
      'annals_ledger_divergent_duplicates_total',
      'Duplicates with another payload or event id.',
      divergentDuplicates,
    ),
    ...counter('annals_ledger_rejected_total', 'Refused because no transition allows them.', rejected),
    ...counter('annals_ledger_fenced_total', 'Refused because another writer has taken over.', fenced),
    ...counter('annals_ledger_alerts_total', 'Invalid transitions that were found.', alerts),
    ...counter('annals_ledger_projected_total', 'Records reduced into stored state.', projector.projected),
    ...gauge(
      'annals_ledger_projector_lag_seconds',
      'Age of what is not projected yet.',
      projector.lagMs / 1_000,
    ),
    '# HELP annals_ledger_append_duration_seconds Time of an append, from the call to the answer.',
    '# TYPE annals_ledger_append_duration_seconds histogram',
    ...within.map(([le, count]) => `annals_ledger_append_duration_seconds_bucket{le="${le}"} ${count}`),
    `annals_ledger_append_duration_seconds_bucket{le="+Inf"} ${appendLatency.count}`,
    `annals_ledger_append_duration_seconds_sum ${appendLatency.sumMs / 1_000}`,
    `annals_ledger_append_duration_seconds_count ${appendLatency.count}`,
  ]
}

function histogram(metric: string, name: string, { count, sumSeconds, within }: Timing): readonly string[] {
  let sum = 0
  const buckets = BOUNDS_SECONDS.map((bound, i) => {
    sum += within[i]
    return `${metric}_bucket{${name},le="${bound}"} ${sum}`
  })
  return [
    ...buckets,
    `${metric}_bucket{${name},le="+Inf"} ${count}`,
    `${metric}_sum{${name}} ${sumSeconds}`,
    `${metric}_count{${name}} ${count}`,
  ]
}

function gauge(metric: string, help: string, value: number): readonly string[] {
  return [`# HELP ${metric} ${help}`, `# TYPE ${metric} gauge`, `${metric} ${value}`]
}

function counter(metric: string, help: string, value: number): readonly string[] {
  return [`# HELP ${metric} ${help}`, `# TYPE ${metric} counter`, `${metric} ${value}`]
}

function escaped(label: string): string {
  return label.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
}
