import { AnnalsError } from '../core/errors.ts'
import type { LaunchEvents, LlmContext, LlmFactory } from './context.ts'
import type { LaunchPayloads, LlmEventType } from './events.ts'
import type { Spans } from './journal.ts'
import { evidenceIn } from './llm/evidence.ts'
import { createLlm, type Llm, type LlmClient } from './llm/llm.ts'
import type { LlmEndpoint } from './llm/llm-options.ts'
import type { Workbench } from './workbench.ts'

/** The journal looks whether it is. */
type LlmPayload = LaunchPayloads[LlmEventType]

/** Opens clients for those who work on a run: all of them share its evidence. */
export class RunLlm {
  readonly #given: LlmEndpoint | LlmFactory | undefined
  #llm: Llm | undefined

  constructor(given: LlmEndpoint | LlmFactory | undefined) {
    this.#given = given
  }

  /** For one worker or gate, from its start until `ended`. */
  open(bench: Workbench, spans: Required<Spans>, events: LaunchEvents, signal: AbortSignal): OpenLlm {
    if (this.#given === undefined) return NONE
    if (typeof this.#given === 'function') return made(this.#given, contextOf(bench, spans, events, signal))
    this.#llm ??= this.#create(this.#given, bench)
    const client = this.#llm.within({ parentSpanId: spans.spanId, signal })
    return { client: () => client, settled: () => client.settled() }
  }

  #create({ mode = 'record', ...given }: LlmEndpoint, { journal, folder, disk, clock }: Workbench): Llm {
    // N9: what is done again by force takes the answers that are there.
    const isForced = journal.state.generation > 1
    return createLlm({
      ...given,
      mode: isForced && mode === 'live' ? 'record' : mode,
      // A call that was begun is ended in the log also if its worker is gone.
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

export interface OpenLlm {
  /** Throws where there is none. */
  client(): LlmClient
  /** Resolves when its calls have ended: once called off they soon do. */
  settled(): Promise<void>
}

const NONE: OpenLlm = {
  client: () => {
    throw new AnnalsError(
      'ILLEGAL_STATE',
      'this launch was started without llm: give it a baseUrl of a model',
    )
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

/** ND7: only the orchestrator changes state; others tell what they ask of models, while they are at work. */
export function llmEvents({ journal }: Workbench, ended: AbortSignal, spans: Required<Spans>): LaunchEvents {
  return {
    append: async (type, payload, { spanId = journal.newHex(8), parentSpanId = spans.spanId } = {}) => {
      ended.throwIfAborted()
      if (!type.startsWith('LLM_CALL_')) {
        const message = `a worker may append LLM_CALL_ events, not ${type}: only the orchestrator changes state`
        throw new AnnalsError('ILLEGAL_STATE', message, { type })
      }
      return journal.append(type, payload, { spanId, parentSpanId })
    },
  }
}
