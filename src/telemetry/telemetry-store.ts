import type { ByteString } from '../core/bytes.ts'
import { isUuidV4 } from '../core/id.ts'
import { mapInSlices } from '../core/slices.ts'
import { formatRfc3339 } from '../core/time.ts'
import type { Database } from '../engine/database.ts'
import { pages } from '../engine/pages.ts'
import type { Entry, Operation, Place, Reader } from '../engine/storage.ts'
import { recordsInTurn } from './records-in-turn.ts'
import { changedRun, isName, type NewRun, type RunChange, type RunRecord } from './run-record.ts'
import { matches, type RunSelection, selectRuns } from './run-selection.ts'
import { findTrail } from './run-trail.ts'
import {
  AGENTS,
  BY_TIME,
  type Counted,
  changeOperations,
  countedName,
  countPlace,
  countRange,
  eventPlace,
  idOf,
  insertOperations,
  insertsPlace,
  JOBS,
  numberOf,
  putNumber,
  recordOf,
  recordPlace,
  runsRange,
} from './stored-run.ts'

/** The agents and job types of all runs. */
export interface TelemetryMetadata {
  readonly agent_names: readonly string[]
  readonly job_types: readonly string[]
  readonly counts: { readonly agent_names: number; readonly job_types: number }
  readonly cache_hit: boolean
}

/** The counts of all runs. */
export interface TelemetryTotals {
  readonly total_runs: number
  /** The number of runs of each agent. */
  readonly agents: Readonly<Record<string, number>>
  /** Runs with a `created_at` in the last 24 hours. */
  readonly recent_24h: number
}

/** A run and its descendants. */
export interface RunTrail {
  readonly run: RunRecord
  /** In the order of `start_time`. Each is read when it is needed. */
  readonly children: AsyncGenerator<RunRecord, void, void>
}

/** What an insert did. A known event id is a duplicate. */
export type Insertion = 'created' | 'duplicate'

const METADATA_MS = 300_000
const DAY_MS = 86_400_000

interface CachedMetadata {
  readonly metadata: Omit<TelemetryMetadata, 'cache_hit'>
  /** The number of inserts at that time. */
  readonly inserts: number
  readonly until: number
}

/**
 * The telemetry runs of one tenant. Each write is one atomic step: an event id
 * is stored once even if it is sent several times at once, and the record, its
 * indexes and the counts change together.
 */
export class TelemetryStore {
  readonly #database: Database
  readonly #scope: ByteString
  #cached: CachedMetadata | undefined

  constructor(database: Database, scope: ByteString) {
    this.#database = database
    this.#scope = scope
  }

  /** Inserts all runs or none. A known or repeated event id changes nothing. */
  async insert(runs: readonly NewRun[]): Promise<readonly Insertion[]> {
    const createdAt = formatRfc3339(this.#database.now())
    const records = runs.map((run): RunRecord => ({ created_at: createdAt, ...run }))
    const events = records.map(run => eventPlace(this.#scope, run.event_id))
    const counted = this.#countedBy(records)
    const reads: readonly Place[] = [insertsPlace(this.#scope), ...events, ...counted.values()]
    const { result } = await this.#database.update(reads, ([inserts, ...found]) =>
      this.#insertion(records, numberOf(inserts), found, counted),
    )
    if (result.includes('created')) this.#cached = undefined
    return result
  }

  async get(eventId: string): Promise<RunRecord | undefined> {
    const id = await this.#idOf(this.#database, eventId)
    const entry = id === undefined ? undefined : await this.#read(recordPlace(this.#scope, id))
    return entry === undefined ? undefined : recordOf(entry)
  }

  /** Changes a run. Returns the new record; undefined if there is none. */
  async change(eventId: string, change: RunChange): Promise<RunRecord | undefined> {
    // Records are never removed, so the id stays valid.
    const id = await this.#idOf(this.#database, eventId)
    if (id === undefined) return undefined
    const { result } = await this.#database.update([recordPlace(this.#scope, id)], ([entry]) => {
      const before = recordOf(entry as Entry)
      const after = changedRun(before, change)
      return { operations: changeOperations(this.#scope, id, before, after), result: after }
    })
    this.#cached = undefined
    return result
  }

  /** Which they are is found out at one moment, and each is read when it is asked for: a slow reader holds up nothing. */
  async *list(selection: RunSelection): AsyncGenerator<RunRecord, void, void> {
    const { run_id, parent_run_id, agent_name, job_type } = selection
    const names = [run_id, parent_run_id, agent_name, job_type].filter(name => name !== undefined)
    if (!names.every(isName)) return
    const ids = await this.#database.view(reader => selectRuns(reader, this.#scope, selection))
    for await (const { run } of recordsInTurn(this.#database, this.#scope, ids)) {
      // The record may have changed since its index entry was read.
      if (matches(run, selection)) yield run
    }
  }

  /** The run of that `run_id` with its descendants; undefined if there is none. */
  async trail(runId: string): Promise<RunTrail | undefined> {
    if (!isName(runId)) return undefined
    const ids = await this.#database.view(reader => findTrail(reader, this.#scope, runId))
    const own = ids === undefined ? undefined : await this.#read(recordPlace(this.#scope, ids.run))
    if (ids === undefined || own === undefined) return undefined
    return { run: recordOf(own), children: this.#records(ids.children) }
  }

  async *#records(ids: readonly ByteString[]): AsyncGenerator<RunRecord, void, void> {
    for await (const { run } of recordsInTurn(this.#database, this.#scope, ids)) yield run
  }

  /** Cached for 300 s. A write of this or another process invalidates the cache. */
  async metadata(): Promise<TelemetryMetadata> {
    const now = this.#database.now()
    const inserts = numberOf(await this.#read(insertsPlace(this.#scope)))
    const cached = this.#cached
    if (cached !== undefined && cached.inserts === inserts && now < cached.until) {
      return { ...cached.metadata, cache_hit: true }
    }
    const fresh = await this.#database.view(reader => this.#readMetadata(reader))
    this.#cached = { ...fresh, until: now + METADATA_MS }
    return { ...fresh.metadata, cache_hit: false }
  }

  totals(): Promise<TelemetryTotals> {
    return this.#database.view(async reader => {
      const counts = await this.#counts(reader, AGENTS)
      const since = runsRange(this.#scope, BY_TIME, '', this.#database.now() - DAY_MS)
      let recent = 0
      for await (const page of pages(reader, since)) recent += page.length
      return {
        total_runs: counts.reduce((sum, [, count]) => sum + count, 0),
        agents: Object.fromEntries(counts),
        recent_24h: recent,
      }
    })
  }

  /** Calls the listener after every write of any process. Returns a function that ends this. */
  subscribe(listener: () => void): Promise<() => void> {
    const { scope, tag } = insertsPlace(this.#scope)
    return this.#database.subscribe({ scope, tag }, listener)
  }

  /** The places of the counts that these records change. */
  #countedBy(records: readonly RunRecord[]): Map<string, Place> {
    const places = new Map<string, Place>()
    for (const run of records) {
      for (const [counted, name] of countsOf(run)) {
        places.set(counted + name, countPlace(this.#scope, counted, name))
      }
    }
    return places
  }

  #insertion(
    records: readonly RunRecord[],
    inserts: number,
    found: readonly (Entry | undefined)[],
    places: ReadonlyMap<string, Place>,
  ): { readonly operations: readonly Operation[]; readonly result: readonly Insertion[] } {
    const counts = new Map([...places.keys()].map((what, i) => [what, numberOf(found[records.length + i])]))
    const seen = new Set<ByteString>()
    const grown = new Set<string>()
    const operations: Operation[] = []
    let last = inserts
    const result = records.map((run, i): Insertion => {
      const eventId = run.event_id.toLowerCase()
      if (found[i] !== undefined || seen.has(eventId)) return 'duplicate'
      seen.add(eventId)
      operations.push(...insertOperations(this.#scope, idOf(++last, eventId), run))
      for (const [counted, name] of countsOf(run)) {
        counts.set(counted + name, (counts.get(counted + name) ?? 0) + 1)
        grown.add(counted + name)
      }
      return 'created'
    })
    if (last === inserts) return { operations: [], result }
    operations.push(putNumber(insertsPlace(this.#scope), last))
    for (const what of grown) operations.push(putNumber(places.get(what) as Place, counts.get(what) ?? 0))
    return { operations, result }
  }

  async #readMetadata(reader: Reader): Promise<Omit<CachedMetadata, 'until'>> {
    const [agents, jobs] = await Promise.all([this.#counts(reader, AGENTS), this.#counts(reader, JOBS)])
    const { scope, tag, key } = insertsPlace(this.#scope)
    const metadata = {
      agent_names: agents.map(([name]) => name),
      job_types: jobs.map(([name]) => name),
      counts: { agent_names: agents.length, job_types: jobs.length },
    }
    return { metadata, inserts: numberOf(await reader.get(scope, tag, key)) }
  }

  async #counts(reader: Reader, counted: Counted): Promise<(readonly [name: string, count: number])[]> {
    const entries: Entry[] = []
    for await (const page of pages(reader, countRange(this.#scope, counted))) entries.push(...page)
    return mapInSlices(entries, entry => [countedName(entry), numberOf(entry)] as const)
  }

  async #idOf(reader: Reader, eventId: string): Promise<ByteString | undefined> {
    if (!isUuidV4(eventId)) return undefined
    const { scope, tag, key } = eventPlace(this.#scope, eventId)
    return (await reader.get(scope, tag, key))?.value
  }

  #read({ scope, tag, key }: Place): Promise<Entry | undefined> {
    return this.#database.get(scope, tag, key)
  }
}

function countsOf(run: RunRecord): readonly (readonly [Counted, string])[] {
  return [
    [AGENTS, run.agent_name],
    [JOBS, run.job_type],
  ]
}
