import type { CreateRunOptions, Run, RunQuery, RunStatus, Tombstone, Value } from '../../src/index.ts'
import { Refusal, type ScopeState } from './scope-model.ts'

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
  scopeOf(runId: string): ScopeState
  /** Forgets all that the run has stored. */
  drop(runId: string): void
}

type ModelledRun = CreateRunOptions & { readonly runId: string; readonly parentRun?: string }
type ModelledQuery = RunQuery & { readonly parentRun?: string; readonly after?: string }

/** P10, once more, from the specification. */
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
    const { runId, parentRun, tags = [], metadata = {} } = options
    if (view.runs.has(runId)) throw new Refusal('RUN_EXISTS')
    if (parentRun !== undefined) {
      if (!view.runs.has(parentRun)) throw new Refusal('RUN_NOT_FOUND')
      for (let id: string | undefined = parentRun; id !== undefined; id = view.runs.get(id)?.parentRun) {
        if (id === runId) throw new Refusal('INVALID_ARGUMENT')
      }
    }
    return set(view, {
      runId,
      ...(parentRun === undefined ? {} : { parentRun }),
      status: 'Active',
      createdAt: view.now,
      updatedAt: view.now,
      tags: [...new Set(tags)],
      metadata,
    })
  },

  get: (view: TenantView, runId: string): Run | undefined => view.runs.get(runId),

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
    const { status, tags = [], createdAfter = 0, createdBefore = Number.POSITIVE_INFINITY, parentRun } = query
    // A map keeps the order in which its keys came, and sorting keeps it within a millisecond.
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
      .filter(run => parentRun === undefined || run.parentRun === parentRun)
      .slice(0, query.limit)
  },

  list: (view: TenantView, options: ModelledQuery = {}): string[] =>
    runsModel.query(view, options).map(({ runId }) => runId),

  children: (view: TenantView, parentRun: string): Run[] =>
    runsModel.query(view, { parentRun, includeArchived: true }),

  delete(view: TenantView, runId: string, options: { reason?: string } = {}): Tombstone {
    existing(view, runId)
    const { events } = view.scopeOf(runId)
    const tombstone: Tombstone = {
      runId,
      deletedAt: view.now,
      ...options,
      events: events.length,
      headHash: events.at(-1)?.hash ?? '0'.repeat(64),
    }
    view.runs.delete(runId)
    view.drop(runId)
    view.tombstones.unshift(tombstone)
    return tombstone
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

function existing(view: TenantView, runId: string): Run {
  const run = view.runs.get(runId)
  if (run === undefined) throw new Refusal('RUN_NOT_FOUND')
  return run
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
