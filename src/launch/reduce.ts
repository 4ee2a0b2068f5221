import { AnnalsError } from '../core/errors.ts'
import type {
  ArtifactRef,
  ClonedInput,
  Issue,
  LaunchEvent,
  LaunchFailure,
  LaunchPayloads,
  PullRequest,
} from './events.ts'
import { isLegalTransition, isTerminal, type SectionState, type StateModel, stableStateOf } from './states.ts'

/** From events to state: pure, without a clock and without I/O. */

export interface ArtifactEntry {
  readonly path: string
  readonly sha256: string
  readonly schema_id: string
  readonly writer_worker: string
  readonly ts: string
  readonly event_id: string
}

export interface NamedArtifact extends ArtifactEntry {
  readonly name: string
}

export type WorkItemStatus = 'queued' | 'running' | 'finished' | 'failed' | 'skipped'

export interface WorkItem {
  readonly work_item_id: string
  readonly worker: string
  readonly scope_key: string
  readonly attempt: number
  readonly status: WorkItemStatus
  readonly inputs: readonly ArtifactRef[]
  readonly outputs: readonly ArtifactRef[]
  readonly queued_at: string
  readonly started_at?: string
  readonly finished_at?: string
  readonly error?: LaunchFailure
}

export interface TrackedIssue extends Issue {
  readonly status: 'OPEN' | 'RESOLVED'
  readonly resolved_at?: string
}

export interface GateResult {
  readonly name: string
  readonly ok: boolean
  readonly finished_at: string
  /** How many it found. */
  readonly issues: number
}

/** How a run stands. */
export interface LaunchState {
  readonly run_id: string
  readonly run_state: string
  /** From 1; a forced restart begins the next. */
  readonly generation: number
  readonly paused: boolean
  /** In the order in which they were first written. A list: to copy one is cheap, and each event makes a new state. */
  readonly artifacts: readonly NamedArtifact[]
  /** In the order in which they were queued. */
  readonly work_items: readonly WorkItem[]
  /** In the order in which they were opened. */
  readonly issues: readonly TrackedIssue[]
  readonly gates: readonly GateResult[]
  readonly section_states: Readonly<Record<string, SectionState>>
  readonly created_at: string
  /** The `ts` of the last event. */
  readonly updated_at: string
  /** What a snapshot does not show, but who goes on has to know. */
  readonly memory: LaunchMemory
}

export interface LaunchMemory {
  readonly launch: string
  readonly launchVersion: string
  readonly config: { readonly [name: string]: unknown }
  /** Work items before this index belong to earlier generations. */
  readonly firstItem: number
  readonly clonedInputs?: readonly ClonedInput[]
  readonly pullRequest?: PullRequest
  /** How often each gate was run. */
  readonly gateRuns: Readonly<Record<string, number>>
  /** The event that follows the last change of state was written. */
  readonly hasEnded: boolean
}

/** The state after one event more; `ILLEGAL_STATE` if the event can't follow. */
export function reduce(state: LaunchState | undefined, event: LaunchEvent, model: StateModel): LaunchState {
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
    case 'INPUTS_CLONED':
      return { memory: { ...state.memory, clonedInputs: event.payload.inputs } }
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
    case 'SECTION_STATE_CHANGED':
      return { section_states: withSection(state.section_states, event.payload) }
    case 'PR_OPENED':
      return { memory: { ...state.memory, pullRequest: event.payload } }
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
      // Calls of models are part of the story and change nothing.
      return {}
  }
}

/** A computed key is an own property whatever its name is, `__proto__` too. */
function withEntry<T>(map: Readonly<Record<string, T>>, name: string, value: T): Record<string, T> {
  return { ...map, [name]: value }
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

/** One that was resolved and comes back keeps its place. */
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

function withSection(
  sections: LaunchState['section_states'],
  { section, old_state, new_state }: LaunchPayloads['SECTION_STATE_CHANGED'],
): Record<string, SectionState> {
  const now = sectionState(sections, section)
  if (now !== old_state) throw illegal(`section ${section} is ${now}, not ${old_state}`)
  return withEntry(sections, section, new_state)
}

export function sectionState(sections: LaunchState['section_states'], section: string): SectionState {
  return Object.hasOwn(sections, section) ? sections[section] : 'NOT_STARTED'
}

export function gateRunsOf({ memory: { gateRuns } }: LaunchState, gate: string): number {
  return Object.hasOwn(gateRuns, gate) ? gateRuns[gate] : 0
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

/** Artifacts stay, as a cache; work items stay, because attempts are counted over the whole run. */
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

function illegal(why: string): AnnalsError {
  return new AnnalsError('ILLEGAL_STATE', why, { reason: why })
}
