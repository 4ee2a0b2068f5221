import type { StoredTrace, Trace, TraceOptions, TraceTree } from '../../src/index.ts'
import {
  byBytes,
  checkWritable,
  Refusal,
  readPoint,
  readRange,
  type ScopeState,
  type Stamp,
  type View,
  wrote,
} from './scope-model.ts'

export interface TraceRecord {
  readonly stored: StoredTrace
  readonly stamp: Stamp
}

type Wanted = (trace: StoredTrace) => boolean

export const tracesModel = {
  record(view: View, trace: Trace, options: TraceOptions & { id: string }): string {
    checkWritable(view)
    const { id, parentId, tags = [], metadata } = options
    const known = find(view, id)
    const parent = parentId === undefined ? undefined : find(view, parentId)
    if (known !== undefined) throw new Refusal('TRACE_EXISTS')
    if (parentId !== undefined && parent === undefined) throw new Refusal('TRACE_NOT_FOUND')
    const stored: StoredTrace = {
      id,
      ...(parentId === undefined ? {} : { parentId }),
      trace,
      timestamp: view.now,
      tags: [...new Set(tags)],
      ...(metadata === undefined ? {} : { metadata }),
    }
    view.scope.traces.set(id, { stored, stamp: view.stamp })
    wrote(view, `trace ${id}`)
    return id
  },

  recordChild: (view: View, parentId: string, trace: Trace, options: TraceOptions & { id: string }): string =>
    tracesModel.record(view, trace, { ...options, parentId }),

  get: (view: View, id: string): StoredTrace | undefined => find(view, id),
  queryByType: (view: View, type: string): StoredTrace[] => query(view, ({ trace }) => trace.type === type),
  queryByTag: (view: View, tag: string): StoredTrace[] => query(view, ({ tags }) => tags.includes(tag)),
  queryByTime: (view: View, start: number, end: number): StoredTrace[] =>
    query(view, ({ timestamp }) => timestamp >= start && timestamp < end),
  children: (view: View, id: string): StoredTrace[] => query(view, ({ parentId }) => parentId === id),
  list: (view: View): string[] => query(view, () => true).map(({ id }) => id),
  count: (view: View): number => query(view, () => true).length,

  tree(view: View, id: string): TraceTree | undefined {
    const trace = find(view, id)
    return trace === undefined ? undefined : grow(view, trace)
  },
}

function grow(view: View, trace: StoredTrace): TraceTree {
  return { trace, children: tracesModel.children(view, trace.id).map(child => grow(view, child)) }
}

function find(view: View, id: string): StoredTrace | undefined {
  readPoint(view, `trace ${id}`, ({ traces }) => traces.get(id)?.stamp ?? 0)
  return view.scope.traces.get(id)?.stored
}

function query(view: View, wanted: Wanted): StoredTrace[] {
  readRange(view, scope =>
    matching(scope, wanted)
      .map(({ stored, stamp }) => `${stored.id}@${stamp}`)
      .join(),
  )
  return matching(view.scope, wanted).map(({ stored }) => stored)
}

function matching({ traces }: ScopeState, wanted: Wanted): TraceRecord[] {
  return [...traces.values()]
    .filter(({ stored }) => wanted(stored))
    .sort(({ stored: a }, { stored: b }) => a.timestamp - b.timestamp || byBytes(a.id, b.id))
}
