import { AnnalsError } from '../core/errors.ts'
import type { LaunchEvents, LlmContext, LlmFactory } from './context.ts'
import type { LaunchPayloads, LlmEventType } from './events.ts'
import type { Spans } from './journal.ts'
import { evidenceIn } from './llm/evidence.ts'
import { createLlm, type Llm, type LlmClient } from './llm/llm.ts'
import type { LlmEndpoint } from './llm/llm-options.ts'
import type { Workbench } from './workbench.ts'

/** The journal validates it. */
type LlmPayload = LaunchPayloads[LlmEventType]

/** Opens clients of models for the workers and gates of a run. All clients share the run's evidence. */
export class RunLlm {
  readonly #given: LlmEndpoint | LlmFactory | undefined
  #llm: Llm | undefined

  constructor(given: LlmEndpoint | LlmFactory | undefined) {
    this.#given = given
  }

  /** Opens a client for one run of a worker or a gate. */
  open(bench: Workbench, spans: Required<Spans>, events: LaunchEvents, signal: AbortSignal): OpenLlm {
    if (this.#given === undefined) return NONE
    if (typeof this.#given === 'function') return made(this.#given, contextOf(bench, spans, events, signal))
    this.#llm ??= this.#create(this.#given, bench)
    const client = this.#llm.within({ parentSpanId: spans.spanId, signal })
    return { client: () => client, settled: () => client.settled() }
  }

  #create({ mode = 'record', ...given }: LlmEndpoint, { journal, folder, disk, clock }: Workbench): Llm {
    // N9: a forced restart uses the recorded answers.
    const isForced = journal.state.generation > 1
    return createLlm({
      ...given,
      mode: isForced && mode === 'live' ? 'record' : mode,
      // Appended to the journal directly: a call must get its end in the log even if its worker has ended.
      events: {
        append: (type, payload, span) =>
          journal.append<LlmEventType>(type, payload as unknown as LlmPayload, span),
      },
      folder,
      openEvidence: evidenceIn(disk),
      traceId: journal.traceId,
      newSpanId: () => journal.newHex(8),
      clock,
    })
  }
}

/** The client of one worker or gate. */
export interface OpenLlm {
  /** The client. Throws if the launch has no models. */
  client(): LlmClient
  /** Resolves when its calls have ended. Abort them first. */
  settled(): Promise<void>
}

const NONE: OpenLlm = {
  client: () => {
    throw new AnnalsError('ILLEGAL_STATE', 'the launch has no models: start it with the option llm')
  },
  settled: async () => undefined,
}

function made(factory: LlmFactory, context: LlmContext): OpenLlm {
  let client: LlmClient | undefined
  return {
    client: () => {
      client ??= factory(context)
      return client
    },
    settled: async () => undefined,
  }
}

function contextOf(
  { journal, folder }: Workbench,
  { spanId }: Required<Spans>,
  events: LaunchEvents,
  signal: AbortSignal,
): LlmContext {
  const { run_id: runId, generation } = journal.state
  const { traceId } = journal
  return { runId, generation, traceId, spanId, folder, signal, events, newSpanId: () => journal.newHex(8) }
}

/** ND7: the events that a worker or a gate may append while it runs. Only the orchestrator changes the state. */
export function llmEvents({ journal }: Workbench, ended: AbortSignal, spans: Required<Spans>): LaunchEvents {
  return {
    append: async (type, payload, { spanId = journal.newHex(8), parentSpanId = spans.spanId } = {}) => {
      ended.throwIfAborted()
      if (!type.startsWith('LLM_CALL_')) {
        const message = `a worker may append only LLM_CALL_ events, not ${type}`
        throw new AnnalsError('ILLEGAL_STATE', message, { type })
      }
      return journal.append(type, payload, { spanId, parentSpanId })
    },
  }
}
