import { docsChanges } from './docs/pipeline.ts'
import type { Issue, LaunchEvent, LaunchPayloads, TrackedIssue, WorkItem, WorkItemStatus } from './events.ts'
import { gateRunsOf, illegal, type LaunchState, withEntry } from './launch-state.ts'
import { isLegalTransition, isTerminal, type StateModel, stableStateOf } from './states.ts'

/** Derives the state of a run from its events: pure, without a clock and without I/O. */

/** The state after one more event. Throws `ILLEGAL_STATE` for an event that may not follow. */
export function applyEvent(
  state: LaunchState | undefined,
  event: LaunchEvent,
  model: StateModel,
): LaunchState {
  if (event.type === 'RUN_CREATED') return created(state, event, model)
  if (state === undefined) throw illegal(`${event.type} before RUN_CREATED`)
  if (state.memory.hasEnded && event.type !== 'RUN_RESTARTED')
    throw illegal(`${event.type} after the run's end`)
  return { ...state, ...changes(state, event, model), updated_at: event.ts }
}

function created(
  state: LaunchState | undefined,
  event: Extract<LaunchEvent, { type: 'RUN_CREATED' }>,
  model: StateModel,
): LaunchState {
  if (state !== undefined) throw illegal('a run is created once')
  const { run_id, launch, launch_version, run_config } = event.payload
  if (run_id !== event.run_id) throw illegal(`RUN_CREATED is about run ${JSON.stringify(run_id)}`)
  return {
    run_id,
    run_state: model.initial,
    generation: 1,
    paused: false,
    artifacts: [],
    work_items: [],
    issues: [],
    gates: [],
    section_states: {},
    created_at: event.ts,
    updated_at: event.ts,
    memory: {
      launch,
      launchVersion: launch_version,
      config: run_config,
      firstItem: 0,
      gateRuns: {},
      hasEnded: false,
    },
  }
}

type Changes = Partial<LaunchState>

function changes(state: LaunchState, event: LaunchEvent, model: StateModel): Changes {
  const { ts } = event
  switch (event.type) {
    case 'ARTIFACT_WRITTEN': {
      const artifact = { ...event.payload, ts, event_id: event.event_id }
      return { artifacts: replaced(state.artifacts, ({ name }) => name === artifact.name, artifact) }
    }
    case 'WORK_ITEM_QUEUED':
      return { work_items: withQueued(state, event.payload, ts) }
    case 'WORK_ITEM_STARTED':
      return changedItem(state, event.payload.work_item_id, ['queued'], {
        status: 'running',
        started_at: ts,
      })
    case 'WORK_ITEM_FINISHED': {
      const { work_item_id, outputs } = event.payload
      return changedItem(state, work_item_id, ['running'], { status: 'finished', finished_at: ts, outputs })
    }
    case 'WORK_ITEM_FAILED': {
      const { work_item_id, error } = event.payload
      return changedItem(state, work_item_id, ['running'], { status: 'failed', finished_at: ts, error })
    }
    case 'WORK_ITEM_SKIPPED':
      return changedItem(state, event.payload.work_item_id, ['queued'], {
        status: 'skipped',
        finished_at: ts,
      })
    case 'GATE_RUN_STARTED': {
      const { gateRuns } = state.memory
      const { gate } = event.payload
      return { memory: { ...state.memory, gateRuns: withEntry(gateRuns, gate, gateRunsOf(state, gate) + 1) } }
    }
    case 'GATE_RUN_FINISHED': {
      const { gate, ok, issues } = event.payload
      const result = { name: gate, ok, finished_at: ts, issues }
      return { gates: replaced(state.gates, ({ name }) => name === gate, result) }
    }
    case 'ISSUE_OPENED':
      return { issues: withOpened(state.issues, event.payload.issue) }
    case 'ISSUE_RESOLVED':
      return { issues: withResolved(state.issues, event.payload.issue_id, ts) }
    case 'RUN_STATE_CHANGED':
      return { run_state: nextState(state, event.payload, model) }
    case 'RUN_COMPLETED':
      return ended(state, model.done, event.type)
    case 'RUN_FAILED':
      return ended(state, model.failed, event.type)
    case 'RUN_CANCELLED':
      return ended(state, model.cancelled, event.type)
    case 'RUN_PAUSED':
      if (state.paused || isTerminal(model, state.run_state))
        throw illegal(`${event.type} of a run that is not running`)
      return { paused: true }
    case 'RUN_RESUMED':
      checkFrom(state, event.payload.from_state)
      return { paused: false }
    case 'RESUME_REWIND':
      return { run_state: rewound(state, event.payload, model) }
    case 'RUN_RESTARTED':
      return restarted(state, event.payload, model)
    default:
      // Calls of models change nothing.
      return docsChanges(state, event)
  }
}

function withQueued(
  state: LaunchState,
  payload: LaunchPayloads['WORK_ITEM_QUEUED'],
  ts: string,
): readonly WorkItem[] {
  const { work_item_id } = payload
  if (state.work_items.some(item => item.work_item_id === work_item_id)) {
    throw illegal(`work item ${work_item_id} is queued already`)
  }
  return [...state.work_items, { ...payload, status: 'queued', outputs: [], queued_at: ts }]
}

function changedItem(
  { work_items }: LaunchState,
  id: string,
  from: readonly WorkItemStatus[],
  change: Partial<WorkItem>,
): Changes {
  const at = work_items.findLastIndex(item => item.work_item_id === id)
  if (at === -1) throw illegal(`there is no work item ${id}`)
  const item = work_items[at]
  if (!from.includes(item.status)) {
    throw illegal(`work item ${id} is ${item.status}: it can't become ${change.status}`)
  }
  return { work_items: work_items.with(at, { ...item, ...change }) }
}

function replaced<T>(list: readonly T[], isIt: (item: T) => boolean, item: T): readonly T[] {
  const at = list.findIndex(isIt)
  return at === -1 ? [...list, item] : list.with(at, item)
}

/** An issue that was resolved and is opened again keeps its place in the list. */
function withOpened(issues: readonly TrackedIssue[], issue: Issue): readonly TrackedIssue[] {
  const known = issues.find(({ issue_id }) => issue_id === issue.issue_id)
  if (known?.status === 'OPEN') throw illegal(`issue ${issue.issue_id} is open already`)
  return replaced(issues, ({ issue_id }) => issue_id === issue.issue_id, { ...issue, status: 'OPEN' })
}

function withResolved(issues: readonly TrackedIssue[], id: string, ts: string): readonly TrackedIssue[] {
  const at = issues.findIndex(({ issue_id, status }) => issue_id === id && status === 'OPEN')
  if (at === -1) throw illegal(`there is no open issue ${id}`)
  return issues.with(at, { ...issues[at], status: 'RESOLVED', resolved_at: ts })
}

function nextState(
  state: LaunchState,
  { old_state, new_state }: LaunchPayloads['RUN_STATE_CHANGED'],
  model: StateModel,
): string {
  checkFrom(state, old_state)
  if (isLegalTransition(model, old_state, new_state)) return new_state
  throw illegal(`no transition leads from ${old_state} to ${new_state}`)
}

function ended(state: LaunchState, expected: string, type: string): Changes {
  if (state.run_state !== expected) throw illegal(`${type} in state ${state.run_state}`)
  return { memory: { ...state.memory, hasEnded: true } }
}

function rewound(
  state: LaunchState,
  { from_state, to_state }: LaunchPayloads['RESUME_REWIND'],
  model: StateModel,
): string {
  checkFrom(state, from_state)
  const back = stableStateOf(model, from_state)
  if (back === to_state && back !== from_state) return to_state
  throw illegal(`${from_state} does not go back to ${to_state}`)
}

/** Artifacts stay as a cache. Work items stay because attempts are counted over the whole run. */
function restarted(
  state: LaunchState,
  { generation, from_state }: LaunchPayloads['RUN_RESTARTED'],
  model: StateModel,
): Changes {
  checkFrom(state, from_state)
  if (generation !== state.generation + 1) throw illegal(`generation ${generation} after ${state.generation}`)
  const { launch, launchVersion, config, gateRuns } = state.memory
  return {
    run_state: model.initial,
    generation,
    paused: false,
    issues: [],
    gates: [],
    section_states: {},
    memory: { launch, launchVersion, config, gateRuns, firstItem: state.work_items.length, hasEnded: false },
  }
}

function checkFrom(state: LaunchState, expected: string): void {
  if (state.run_state !== expected) throw illegal(`the run is in state ${state.run_state}, not ${expected}`)
}
