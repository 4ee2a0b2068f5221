import type {
  CreateRunOptions,
  EnsureRunOptions,
  ErrorCode,
  Run,
  RunQuery,
  RunStatus,
  Tombstone,
  Value,
} from '../../src/index.ts'
import { Refusal, type ScopeState } from './scope-model.ts'
import { isReserved, placedIn, runNamed, runPartOf, shownPlace } from './scopes.ts'

/** The runs of one tenant. */
export class TenantState {
  readonly runs: Map<string, Run>
  readonly tombstones: Tombstone[]

  constructor(from?: TenantState) {
    this.runs = new Map(from?.runs)
    this.tombstones = [...(from?.tombstones ?? [])]
  }
}

export interface TenantView extends TenantState {
  readonly now: number
  /** The state of the scope with this name. */
  scopeOf(name: string): ScopeState
  /** Removes all data of the scope. */
  drop(name: string): void
}

/** Runs are identified by the names in `scopes.ts`. */
type ModelledRun = CreateRunOptions & { readonly runId: string; readonly parentRun?: string }
type ModelledQuery = RunQuery & { readonly parentRun?: string; readonly after?: string }

/** P10: the allowed transitions, written again from the specification. */
const NEXT: Readonly<Record<RunStatus, string>> = {
  Active: 'Completed Failed Cancelled Paused Archived',
  Paused: 'Active Cancelled Archived',
  Completed: 'Archived',
  Failed: 'Archived',
  Cancelled: 'Archived',
  Archived: '',
}
const ENDS: readonly RunStatus[] = ['Completed', 'Failed', 'Cancelled']

export const runsModel = {
  create(view: TenantView, options: ModelledRun): Run {
    const { runId: name, parentRun: parent, tags = [], metadata = {} } = options
    const { runId } = runNamed(name)
    if (view.runs.has(runId)) throw new Refusal('RUN_EXISTS')
    const parentRun = parent === undefined ? undefined : existing(view, parent).runId
    if (parentRun !== undefined) {
      for (let id: string | undefined = parentRun; id !== undefined; id = view.runs.get(id)?.parentRun) {
        if (id === runId) throw new Refusal('INVALID_ARGUMENT')
      }
    }
    return set(view, {
      runId,
      ...shownPlace(name),
      ...(parentRun === undefined ? {} : { parentRun }),
      status: 'Active',
      createdAt: view.now,
      updatedAt: view.now,
      tags: [...new Set(tags)],
      metadata,
    })
  },

  ensure(view: TenantView, name: string, options: EnsureRunOptions = {}): Run {
    const known = view.runs.has(runNamed(name).runId)
    if (!known) return runsModel.create(view, { ...options, runId: name } as ModelledRun)
    return found(view, name) ?? refuse('RUN_EXISTS')
  },

  get: (view: TenantView, name: string): Run | undefined => found(view, name),

  updateStatus: (view: TenantView, runId: string, status: RunStatus): Run => setStatus(view, runId, status),
  complete: (view: TenantView, runId: string): Run => setStatus(view, runId, 'Completed'),
  fail: (view: TenantView, runId: string, error: string): Run => setStatus(view, runId, 'Failed', error),
  cancel: (view: TenantView, runId: string): Run => setStatus(view, runId, 'Cancelled'),
  pause: (view: TenantView, runId: string): Run => setStatus(view, runId, 'Paused'),
  resume: (view: TenantView, runId: string): Run => setStatus(view, runId, 'Active'),
  archive: (view: TenantView, runId: string): Run => setStatus(view, runId, 'Archived'),

  addTags(view: TenantView, runId: string, tags: readonly string[]): Run {
    const run = existing(view, runId)
    return set(view, { ...run, tags: [...new Set([...run.tags, ...tags])], updatedAt: view.now })
  },

  updateMetadata(view: TenantView, runId: string, metadata: Value): Run {
    return set(view, { ...existing(view, runId), metadata, updatedAt: view.now })
  },

  query(view: TenantView, query: ModelledQuery = {}): Run[] {
    const { status, tags = [], createdAfter = 0, createdBefore = Number.POSITIVE_INFINITY } = query
    const parent = query.parentRun === undefined ? undefined : runNamed(query.parentRun)
    // Children store the id of their parent, so a name that points to another scope has no children.
    const isElsewhere = parent !== undefined && view.runs.has(parent.runId)
    if (isElsewhere && found(view, query.parentRun as string) === undefined) return []
    // A map keeps insertion order, and the sort is stable, so runs of the same millisecond stay in order.
    const newestFirst = [...view.runs.values()].reverse().sort((a, b) => b.createdAt - a.createdAt)
    const start = query.after === undefined ? 0 : newestFirst.indexOf(existing(view, query.after)) + 1
    return newestFirst
      .slice(start)
      .filter(run =>
        status === undefined
          ? run.status !== 'Archived' || query.includeArchived === true
          : run.status === status,
      )
      .filter(run => tags.every(tag => run.tags.includes(tag)))
      .filter(run => run.createdAt >= createdAfter && run.createdAt < createdBefore)
      .filter(run => parent === undefined || run.parentRun === parent.runId)
      .slice(0, query.limit)
  },

  list: (view: TenantView, options: ModelledQuery = {}): string[] =>
    runsModel.query(view, options).map(({ runId }) => runId),

  children: (view: TenantView, parentRun: string): Run[] =>
    runsModel.query(view, { parentRun, includeArchived: true }),

  delete(view: TenantView, name: string, options: { reason?: string } = {}): Tombstone {
    const run = existing(view, name)
    view.runs.delete(run.runId)
    return bury(view, home(run), options)
  },

  /** The method of the database itself. */
  drop(view: TenantView, name: string): void {
    const { runId, scope = name } = runNamed(name)
    const run = view.runs.get(runId)
    if (isReserved(name) || (run !== undefined && home(run) === scope)) throw new Refusal('INVALID_OPERATION')
    if (view.scopeOf(scope).events.length > 0) bury(view, scope)
    else view.drop(scope)
  },

  tombstones: (view: TenantView): readonly Tombstone[] => view.tombstones,

  stats(view: TenantView): Record<string, number> {
    const count = (status: RunStatus): number =>
      [...view.runs.values()].filter(run => run.status === status).length
    return {
      total: view.runs.size,
      active: count('Active'),
      completed: count('Completed'),
      failed: count('Failed'),
      cancelled: count('Cancelled'),
      paused: count('Paused'),
      archived: count('Archived'),
    }
  },
}

/** The run with this name, if it lives in the scope that the name means. */
function found(view: TenantView, name: string): Run | undefined {
  const { runId, scope } = runNamed(name)
  const run = view.runs.get(runId)
  return run === undefined || scope === undefined || scope === home(run) ? run : undefined
}

function existing(view: TenantView, name: string): Run {
  return found(view, name) ?? refuse('RUN_NOT_FOUND')
}

function refuse(code: ErrorCode): never {
  throw new Refusal(code)
}

/** The name of the scope in which the run lives. */
function home({ runId, app, agent }: Run): string {
  return placedIn({
    ...(app === undefined ? {} : { app }),
    ...(agent === undefined ? {} : { agent }),
    run: runId,
  })
}

/** Removes the data of a scope and leaves a tombstone. */
function bury(view: TenantView, scope: string, options: { reason?: string } = {}): Tombstone {
  const { events } = view.scopeOf(scope)
  const tombstone: Tombstone = {
    runId: runPartOf(scope),
    ...shownPlace(scope),
    deletedAt: view.now,
    ...options,
    events: events.length,
    headHash: events.at(-1)?.hash ?? '0'.repeat(64),
  }
  view.drop(scope)
  view.tombstones.unshift(tombstone)
  return tombstone
}

function set(view: TenantView, run: Run): Run {
  view.runs.set(run.runId, run)
  return run
}

function setStatus(view: TenantView, runId: string, status: RunStatus, error?: string): Run {
  const run = existing(view, runId)
  if (!NEXT[run.status].split(' ').includes(status)) throw new Refusal('INVALID_TRANSITION')
  return set(view, {
    ...run,
    status,
    updatedAt: view.now,
    ...(ENDS.includes(status) ? { completedAt: view.now } : {}),
    ...(error === undefined ? {} : { error }),
  })
}
