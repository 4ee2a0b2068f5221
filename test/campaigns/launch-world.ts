import type { Random as RandomBytes } from '../../src/core/id.ts'
import { lineOf } from '../../src/launch/chain.ts'
import type { AnyNodeContext, FixInput, LaunchObserver, WorkerContext } from '../../src/launch/context.ts'
import { defineLaunch, defineWorker, type Launch } from '../../src/launch/definition.ts'
import type { LaunchEvent } from '../../src/launch/events.ts'
import type { Random } from '../../src/testing/random.ts'
import { TelemetryTwin } from '../simulation/telemetry-twin.ts'

/** The world around launches that crash. The calls that its workers, models and telemetry have seen survive every crash. */

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

/** The amount of work in a launch. */
export interface LaunchShape {
  readonly name: string
  readonly scopes: readonly string[]
  /** The number of artifacts that each worker writes, in addition to its result. */
  readonly artifacts: number
  readonly hasModel: boolean
  readonly hasGate: boolean
}

/** Small enough to crash at every call with every possible power cut. */
export const TINY_LAUNCH: LaunchShape = {
  name: 'tiny',
  scopes: ['a'],
  artifacts: 1,
  hasModel: false,
  hasGate: false,
}
/** The same launch with telemetry, which crashes only while the run ends. */
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
  /** The work items whose workers were run, one entry for each execution. */
  executed: readonly string[] = []
  /** The prompts that the model received. */
  asked: readonly string[] = []
  /** The prompts whose answer a worker received. */
  answered: readonly string[] = []
  /** The lines of the log that an observer was told of. */
  lines: readonly string[] = []
  /** The number of events in the last snapshot that a caller may rely on. */
  snapshotEvents = 0
  /** The part of the last line that a power cut has left. */
  torn: Buffer = Buffer.alloc(0)
  service: TelemetryTwin = new TelemetryTwin()
  now: number = Date.UTC(2026, 0, 28)

  copy(): LaunchWorld {
    const copy = Object.assign(new LaunchWorld(), this)
    copy.service = this.service.copy()
    return copy
  }

  /** The model. Its answers are made in memory and depend on the prompt only. */
  readonly model = async (_url: unknown, init?: RequestInit): Promise<Response> => {
    const { messages } = JSON.parse(String(init?.body)) as { messages: { content: string }[] }
    const prompt = messages[0].content
    this.asked = [...this.asked, prompt]
    const message = { role: 'assistant', content: `answer to ${prompt}` }
    const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 }
    const body = { id: 'x', model: 'm', choices: [{ index: 0, message, finish_reason: 'stop' }], usage }
    return new Response(JSON.stringify(body), { headers: { 'content-type': 'application/json' } })
  }

  /** Once a process has appended a line, the lines that it found are durable and count as promised. */
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

  /** A clock that sometimes goes back. */
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
    // All scopes write an artifact with this name, so each replaces the one before.
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
