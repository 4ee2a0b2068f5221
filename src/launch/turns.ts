import { sha256Hex } from '../core/hash.ts'
import type { AnyLaunchEvent, LaunchEvent } from './events.ts'
import { ruleOf, type StateModel } from './states.ts'

/**
 * The events after which a node runs. Nodes have no events of their own: the
 * span of one follows from the event before it, so that whoever reads the log
 * knows it, also of a node that a crash has cut off.
 */

/** The state whose node runs after an event; undefined if none does. */
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
      // In another state it is rewound first. One that ends a pause has a span of its own: its node goes on.
      const { from_state } = event.payload
      return event.span_id === rootSpanId && ruleOf(model, from_state)?.kind === 'stable'
        ? from_state
        : undefined
    }
    default:
      return undefined
  }
}

/** The hash covers all events before: no two nodes of a run have the same. */
export function spanIdAfter({ event_hash }: AnyLaunchEvent, what: 'node' | 'commit'): string {
  return sha256Hex(`annals:launch:${what}|${event_hash}`).slice(0, 16)
}
