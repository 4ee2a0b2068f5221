import { canonicalJson } from '../../core/canonical-json.ts'
import type { ClonedInput, LaunchEvent, LaunchFormat, LaunchPayloads, PullRequest } from '../events.ts'
import type { Journal, Spans } from '../journal.ts'
import { illegal, type LaunchState, withEntry } from '../launch-state.ts'
import { DOCS_VALUES } from './formats.ts'

/**
 * The docs pipeline: clone inputs, draft sections, validate, open a pull
 * request. It is a state model, three event types (`formats.ts`) and the node
 * methods that append them. The rest of `src/launch` knows none of its states.
 */

/** The states of the docs pipeline. A launch that brings no state model of its own has these. */
export const DOCS_STATES = {
  initial: 'CREATED',
  done: 'DONE',
  failed: 'FAILED',
  cancelled: 'CANCELLED',
  states: {
    CREATED: { kind: 'stable', next: ['CLONED_INPUTS'] },
    CLONED_INPUTS: { kind: 'stable', next: ['INGESTED'] },
    INGESTED: { kind: 'stable', next: ['FACTS_READY'] },
    FACTS_READY: { kind: 'stable', next: ['PLAN_READY'] },
    PLAN_READY: { kind: 'stable', next: ['DRAFTING'] },
    DRAFTING: { kind: 'transitional', next: ['DRAFT_READY'], rewindTo: 'PLAN_READY' },
    DRAFT_READY: { kind: 'stable', next: ['LINKING'] },
    LINKING: { kind: 'transitional', next: ['VALIDATING'], rewindTo: 'DRAFT_READY' },
    VALIDATING: { kind: 'transitional', next: ['FIXING', 'READY_FOR_PR'], rewindTo: 'DRAFT_READY' },
    FIXING: { kind: 'transitional', next: ['VALIDATING'], rewindTo: 'DRAFT_READY' },
    READY_FOR_PR: { kind: 'stable', next: ['PR_OPENED'] },
    PR_OPENED: { kind: 'stable', next: ['DONE'] },
    DONE: { kind: 'terminal' },
    FAILED: { kind: 'terminal' },
    CANCELLED: { kind: 'terminal' },
  },
} as const

/** The type of the docs pipeline's state model. */
export type DocsStates = typeof DOCS_STATES
/** A state of the docs pipeline. */
export type DocsState = keyof DocsStates['states']

/** The states of a section. A section starts as `NOT_STARTED`. */
export const SECTION_STATES: readonly SectionState[] = DOCS_VALUES['section-state'].enum
/** A state of a section. */
export type SectionState = LaunchFormat<'section-state'>

/** What an event of the docs pipeline changes. Other events change nothing here. */
export function docsChanges(state: LaunchState, event: LaunchEvent): Partial<LaunchState> {
  const { memory, section_states } = state
  switch (event.type) {
    case 'INPUTS_CLONED':
      return { memory: { ...memory, clonedInputs: event.payload.inputs } }
    case 'SECTION_STATE_CHANGED':
      return { section_states: withSection(section_states, event.payload) }
    case 'PR_OPENED':
      return { memory: { ...memory, pullRequest: event.payload } }
    default:
      return {}
  }
}

function withSection(
  sections: LaunchState['section_states'],
  { section, old_state, new_state }: LaunchPayloads['SECTION_STATE_CHANGED'],
): LaunchState['section_states'] {
  const now = sectionState(sections, section)
  if (now !== old_state) throw illegal(`section ${section} is ${now}, not ${old_state}`)
  return withEntry(sections, section, new_state)
}

function sectionState(sections: LaunchState['section_states'], section: string): SectionState {
  return Object.hasOwn(sections, section) ? sections[section] : 'NOT_STARTED'
}

/** The methods of a node that record the progress of the docs pipeline. A repeated call with the same values is a no-op. */
export interface DocsMethods {
  /** Records the inputs of the run. */
  inputsCloned(inputs: readonly ClonedInput[]): Promise<void>
  /** Changes the state of a section. */
  section(name: string, state: SectionState): Promise<void>
  /** Records the pull request of the run. Telemetry associates its commit with the run. */
  prOpened(pullRequest: PullRequest): Promise<void>
}

/** The docs methods of a node. `allowed` rejects once the node has ended. */
export function docsMethods(journal: Journal, spans: Spans, allowed: () => Promise<void>): DocsMethods {
  return {
    inputsCloned: async inputs => {
      await allowed()
      if (isSame(journal.state.memory.clonedInputs, inputs)) return
      await journal.append('INPUTS_CLONED', { inputs }, spans)
    },
    section: async (section, new_state) => {
      await allowed()
      const old_state = sectionState(journal.state.section_states, section)
      if (old_state === new_state) return
      await journal.append('SECTION_STATE_CHANGED', { section, old_state, new_state }, spans)
    },
    prOpened: async pullRequest => {
      await allowed()
      if (isSame(journal.state.memory.pullRequest, pullRequest)) return
      await journal.append('PR_OPENED', pullRequest, spans)
    },
  }
}

function isSame(a: unknown, b: unknown): boolean {
  return a !== undefined && canonicalJson(a) === canonicalJson(b)
}

/** The commit that an event tells of; undefined for most events. */
export function commitIn(event: LaunchEvent): string | undefined {
  return event.type === 'PR_OPENED' ? event.payload.commit_sha : undefined
}
