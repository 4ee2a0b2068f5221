import type { Random as RandomBytes } from '../../src/core/id.ts'
import { lineOf } from '../../src/launch/chain.ts'
import type { AnyNodeContext, FixInput, LaunchObserver, WorkerContext } from '../../src/launch/context.ts'
import { defineLaunch, defineWorker, type Launch } from '../../src/launch/definition.ts'
import type { LaunchEvent } from '../../src/launch/events.ts'
import type { Random } from '../../src/testing/random.ts'
import { TelemetryTwin } from '../simulation/telemetry-twin.ts'

/** The world around launches that crash: what their workers, models and telemetry have seen outlives every process. */

export const RUN_ID = 'run-1'

export const STATES = {
  initial: 'READY',
  done: 'DONE',
  failed: 'FAILED',
  cancelled: 'CANCELLED',
  states: {
    READY: { kind: 'stable', next: ['WORKING'] },
    WORKING: { kind: 'transitional', next: ['WORKED', 'DONE'], rewindTo: 'READY' },
    WORKED: { kind: 'stable', next: ['CHECKING'] },
    CHECKING: { kind: 'transitional', next: ['MENDING', 'DONE'], rewindTo: 'WORKED' },
    MENDING: { kind: 'transitional', next: ['CHECKING'], rewindTo: 'WORKED' },
    DONE: { kind: 'terminal' },
    FAILED: { kind: 'terminal' },
    CANCELLED: { kind: 'terminal' },
  },
} as const

/** How much a launch does. */
export interface LaunchShape {
  readonly name: string
  readonly scopes: readonly string[]
  /** Artifacts that each worker writes, beside what it returns. */
  readonly artifacts: number
  readonly hasModel: boolean
  readonly hasGate: boolean
}

/** Small enough for every power cut at every call. */
export const TINY_LAUNCH: LaunchShape = {
  name: 'tiny',
  scopes: ['a'],
  artifacts: 1,
  hasModel: false,
  hasGate: false,
}
/** The same, with telemetry, and it dies only while it ends. */
export const ENDING_LAUNCH: LaunchShape = { ...TINY_LAUNCH, name: 'ending' }
export const SMALL_LAUNCH: LaunchShape = {
  name: 'small',
  scopes: ['a', 'b'],
  artifacts: 1,
  hasModel: true,
  hasGate: true,
}
export const LARGE_LAUNCH: LaunchShape = {
  name: 'large',
  scopes: ['a', 'b', 'c', 'd', 'e'],
  artifacts: 3,
  hasModel: true,
  hasGate: true,
}

/** Types of events after which a snapshot is written. */
const SNAPSHOT_AFTER: readonly string[] = [
  'RUN_CREATED',
  'RUN_STATE_CHANGED',
  'RESUME_REWIND',
  'RUN_RESTARTED',
  'RUN_RESUMED',
  'RUN_COMPLETED',
]

export class LaunchWorld {
  /** Work items, each time that their worker was run. */
  executed: readonly string[] = []
  /** Prompts that a model was asked. */
  asked: readonly string[] = []
  /** Prompts whose answer a worker has got. */
  answered: readonly string[] = []
  /** Lines of the log that somebody was told of. */
  lines: readonly string[] = []
  /** How many events the last snapshot covers that somebody relied on. */
  snapshotEvents = 0
  /** Of the last line, what a power cut has left of it. */
  torn: Buffer = Buffer.alloc(0)
  service: TelemetryTwin = new TelemetryTwin()
  now: number = Date.UTC(2026, 0, 28)

  copy(): LaunchWorld {
    const copy = Object.assign(new LaunchWorld(), this)
    copy.service = this.service.copy()
    return copy
  }

  /** Every answer of it is from memory, and follows from what was asked. */
  readonly model = async (_url: unknown, init?: RequestInit): Promise<Response> => {
    const { messages } = JSON.parse(String(init?.body)) as { messages: { content: string }[] }
    const prompt = messages[0].content
    this.asked = [...this.asked, prompt]
    const message = { role: 'assistant', content: `answer to ${prompt}` }
    const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 }
    const body = { id: 'x', model: 'm', choices: [{ index: 0, message, finish_reason: 'stop' }], usage }
    return new Response(JSON.stringify(body), { headers: { 'content-type': 'application/json' } })
  }

  /** Lines that a process found are durable, and promised, once it has appended another. */
  observer(found: readonly string[]): LaunchObserver {
    let isFirst = true
    const settled = (): void => {
      this.snapshotEvents = 1 + this.lines.findLastIndex(line => isSealed(line))
    }
    return {
      eventAppended: (event: LaunchEvent) => {
        this.lines = [...(isFirst ? found : this.lines), lineOf(event)]
        isFirst = false
      },
      launchStarted: settled,
      nodeStarted: settled,
      launchEnded: settled,
    }
  }

  /** It goes back now and then, as clocks do. */
  clock(random: Random): () => number {
    return () => {
      this.now += random.chance(0.2) ? -1_000 * random.below(100) : random.below(2_000)
      return this.now
    }
  }

  /** Whether the event before RUN_COMPLETED was promised. */
  get isEnding(): boolean {
    return this.lines.slice(-2).some(line => line.includes(`"new_state":"${STATES.done}"`))
  }

  launch(shape: LaunchShape): Launch {
    return launchOf(shape, this)
  }
}

function isSealed(line: string): boolean {
  return SNAPSHOT_AFTER.includes((JSON.parse(line) as LaunchEvent).type)
}

export function randomBytesOf(random: Random): RandomBytes {
  return count => Uint8Array.from({ length: count }, () => random.below(256))
}

function launchOf(shape: LaunchShape, world: LaunchWorld): Launch {
  const { scopes, artifacts, hasModel, hasGate } = shape
  const work = async (_: unknown, context: WorkerContext): Promise<unknown> => {
    world.executed = [...world.executed, context.workItemId]
    const { scope } = context
    let text = `text of ${scope}`
    if (hasModel) {
      const prompt = `write about ${scope}`
      const { content } = await context.llm.chat({
        model: 'm',
        messages: [{ role: 'user', content: prompt }],
      })
      world.answered = [...world.answered, prompt]
      text = content
    }
    for (let n = 0; n < artifacts; n++)
      await context.artifacts.write(`texts/${scope}/${n}.txt`, `${text} ${n} `.repeat(20))
    // The same name, whichever scope is the last: it is replaced.
    if (scopes.length > 1) await context.artifacts.write('texts/common.txt', text)
    return { length: text.length }
  }
  const mend = async (_: FixInput, context: WorkerContext): Promise<void> => {
    world.executed = [...world.executed, context.workItemId]
    await context.artifacts.write('mended.txt', 'mended')
  }
  return defineLaunch({
    name: 'crashing',
    version: '1',
    states: STATES,
    workers: {
      work: defineWorker({ run: work, backoffMs: 1 }),
      mend: defineWorker({ run: mend, backoffMs: 1 }),
    },
    gates: hasGate
      ? {
          mended: {
            run: ({ artifacts: found }) =>
              found.has('mended.txt') && found.readText('mended.txt') === 'mended'
                ? []
                : [{ severity: 'error' as const, message: 'not mended' }],
          },
        }
      : {},
    fixer: 'mend',
    nodes: [
      { name: 'begin', state: 'READY', run: async () => 'WORKING' },
      {
        name: 'work',
        state: 'WORKING',
        run: async ctx => {
          const context = ctx as AnyNodeContext
          await Promise.all(scopes.map(scope => context.work('work', { scope, input: { scope } })))
          for (const scope of scopes) await context.section(scope, 'DRAFTED')
          return hasGate ? 'WORKED' : 'DONE'
        },
      },
      { name: 'worked', state: 'WORKED', run: async () => 'CHECKING' },
      {
        name: 'check',
        state: 'CHECKING',
        run: async ctx => ((await ctx.validate()).ok ? 'DONE' : 'MENDING'),
      },
      {
        name: 'mend',
        state: 'MENDING',
        run: async ctx => {
          await ctx.fix()
          return 'CHECKING'
        },
      },
    ],
  })
}
