import type { Annals } from '../annals.ts'
import type { LedgerStats } from '../ledger/metrics.ts'
import type { Admission } from './admission.ts'

const BOUNDS_SECONDS: readonly number[] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10]

interface Timing {
  readonly method: string
  readonly route: string
  count: number
  sumSeconds: number
  /** The number of requests in each bucket: longer than the previous bound, at most this one. */
  readonly within: number[]
  readonly statuses: Map<number, number>
}

/** Counts requests by route and status. Not by path, because callers could create any number of them. */
export class RequestMetrics {
  /** By route and method. */
  readonly #timings = new Map<string, Map<string, Timing>>()
  openStreams = 0
  streamsStalled = 0
  readonly #admission: Admission

  constructor(admission: Admission) {
    this.#admission = admission
  }

  add(method: string, route: string, status: number, ms: number): void {
    const timing = this.#timing(method, route)
    const seconds = ms / 1_000
    timing.count++
    timing.sumSeconds += seconds
    timing.statuses.set(status, (timing.statuses.get(status) ?? 0) + 1)
    for (let i = 0; i < BOUNDS_SECONDS.length; i++) {
      if (seconds > BOUNDS_SECONDS[i]) continue
      timing.within[i]++
      return
    }
  }

  #timing(method: string, route: string): Timing {
    let ofRoute = this.#timings.get(route)
    if (ofRoute === undefined) {
      ofRoute = new Map()
      this.#timings.set(route, ofRoute)
    }
    let timing = ofRoute.get(method)
    if (timing === undefined) {
      const within = BOUNDS_SECONDS.map(() => 0)
      timing = { method, route, count: 0, sumSeconds: 0, within, statuses: new Map() }
      ofRoute.set(method, timing)
    }
    return timing
  }

  /** The text format of Prometheus, version 0.0.4. */
  text(dbs: readonly Annals[]): string {
    const lines = [
      '# HELP annals_http_requests_total Answered requests.',
      '# TYPE annals_http_requests_total counter',
    ]
    const timings = [...this.#timings.values()].flatMap(ofRoute => [...ofRoute.values()])
    for (const timing of timings) {
      for (const [status, count] of timing.statuses) {
        lines.push(`annals_http_requests_total{${nameOf(timing)},status="${status}"} ${count}`)
      }
    }
    lines.push(
      '# HELP annals_http_request_duration_seconds Time from a request to the headers of its response.',
      '# TYPE annals_http_request_duration_seconds histogram',
    )
    for (const timing of timings) lines.push(...histogram('annals_http_request_duration_seconds', timing))
    lines.push(
      ...gauge('annals_http_open_streams', 'Open event streams.', this.openStreams),
      ...counter(
        'annals_http_streams_stalled_total',
        'Event streams closed because the client did not read.',
        this.streamsStalled,
      ),
      ...this.#admissionLines(),
      ...ledgerLines(dbs.map(db => db.stats().ledger)),
      ...gauge('process_resident_memory_bytes', 'Resident memory of the server.', process.memoryUsage.rss()),
      ...counter('process_cpu_seconds_total', 'CPU time used by the server.', cpuSeconds()),
    )
    return `${lines.join('\n')}\n`
  }

  #admissionLines(): readonly string[] {
    const { heavy, bodyBytes } = this.#admission
    return [
      ...gauge('annals_http_heavy_requests', 'Heavy requests in progress.', heavy.held),
      ...gauge('annals_http_heavy_requests_waiting', 'Heavy requests waiting for a slot.', heavy.waiting),
      ...counter(
        'annals_http_heavy_requests_refused_total',
        'Heavy requests refused because no slot was free in time.',
        heavy.refused,
      ),
      ...gauge(
        'annals_http_body_bytes',
        'Bytes of memory reserved for large request bodies.',
        bodyBytes.held,
      ),
      ...gauge('annals_http_bodies_waiting', 'Large request bodies waiting for memory.', bodyBytes.waiting),
      ...counter(
        'annals_http_bodies_refused_total',
        'Large request bodies refused because no memory was free in time.',
        bodyBytes.refused,
      ),
    ]
  }
}

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}

const LEDGER_COUNTERS: readonly (readonly [name: string, help: string, of: (one: LedgerStats) => number])[] =
  [
    ['appended', 'Events stored.', one => one.appended],
    ['duplicates', 'Appends of events that were stored before.', one => one.duplicates],
    [
      'divergent_duplicates',
      'Duplicates with a different payload or event id.',
      one => one.divergentDuplicates,
    ],
    ['rejected', 'Appends refused because no transition allows them.', one => one.rejected],
    ['fenced', 'Appends refused because another writer holds the lease.', one => one.fenced],
    ['alerts', 'Alerts for events that no transition allows.', one => one.alerts],
    ['projected', 'Events applied to stored snapshots.', one => one.projector.projected],
  ]

/** The sum over all tenants. */
function ledgerLines(stats: readonly LedgerStats[]): readonly string[] {
  const sum = (of: (one: LedgerStats) => number): number => stats.reduce((total, one) => total + of(one), 0)
  const lagMs = Math.max(0, ...stats.map(one => one.projector.lagMs))
  const appends = sum(one => one.appendLatency.count)
  const within = (stats[0]?.appendLatency.buckets ?? []).map(
    ({ leMs }, i) => [leMs / 1_000, sum(one => one.appendLatency.buckets[i].count)] as const,
  )
  return [
    ...LEDGER_COUNTERS.flatMap(([name, help, of]) => counter(`annals_ledger_${name}_total`, help, sum(of))),
    ...gauge(
      'annals_ledger_projector_lag_seconds',
      'Age of the oldest event that is not in its snapshot yet.',
      lagMs / 1_000,
    ),
    '# HELP annals_ledger_append_duration_seconds Duration of an append.',
    '# TYPE annals_ledger_append_duration_seconds histogram',
    ...within.map(([le, count]) => `annals_ledger_append_duration_seconds_bucket{le="${le}"} ${count}`),
    `annals_ledger_append_duration_seconds_bucket{le="+Inf"} ${appends}`,
    `annals_ledger_append_duration_seconds_sum ${sum(one => one.appendLatency.sumMs) / 1_000}`,
    `annals_ledger_append_duration_seconds_count ${appends}`,
  ]
}

function nameOf({ method, route }: Timing): string {
  return `method="${escaped(method)}",route="${escaped(route)}"`
}

function histogram(metric: string, timing: Timing): readonly string[] {
  const { count, sumSeconds, within } = timing
  const name = nameOf(timing)
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
