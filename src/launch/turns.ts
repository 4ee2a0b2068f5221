import { sha256Hex } from '../core/hash.ts'
import type { AnyLaunchEvent, LaunchEvent } from './events.ts'
import { ruleOf, type StateModel } from './states.ts'

/**
 * The state whose node runs after an event; undefined if none does. Nodes have no events of their own, so their spans
 * follow from the events before them (`spanIdAfter`). A reader of the log can compute them even after a crash.
 */
export function turnOf(event: LaunchEvent, rootSpanId: string, model: StateModel): string | undefined {
  switch (event.type) {
    case 'RUN_CREATED':
      return model.initial
    case 'RUN_STATE_CHANGED': {
      const { new_state } = event.payload
      return ruleOf(model, new_state)?.kind === 'terminal' ? undefined : new_state
    }
    case 'RESUME_REWIND':
      return event.payload.to_state
    case 'RUN_RESUMED': {
      // In a transitional state the run is rewound first. After a pause the node continues, and the event has another span.
      const { from_state } = event.payload
      return event.span_id === rootSpanId && ruleOf(model, from_state)?.kind === 'stable'
        ? from_state
        : undefined
    }
    default:
      return undefined
  }
}

/** A span id derived from an event. The hash covers all earlier events, so the spans of a run are different. */
export function spanIdAfter({ event_hash }: AnyLaunchEvent, what: 'node' | 'commit'): string {
  return sha256Hex(`annals:launch:${what}|${event_hash}`).slice(0, 16)
}
