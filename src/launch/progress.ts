import type { LaunchObserver } from './context.ts'
import type { LaunchEvent } from './events.ts'
import { NO_SCOPE, workOf } from './work-items.ts'

/** Where progress is shown: `process.stderr`, or anything else that can be written to. */
export interface ProgressOutput {
  /** Whether it is a terminal, in which lines can be redrawn. */
  readonly isTTY?: boolean
  /** The width of the terminal; 80 by default. */
  readonly columns?: number
  /** Writes a text. */
  write(text: string): unknown
}

/** Options of `showProgress`. */
export interface ProgressOptions {
  /** `process.stderr` by default. */
  readonly output?: ProgressOutput
  /** The time in milliseconds since 1970. */
  readonly clock?: () => number
}

/** An observer that shows the progress of a launch: in a terminal as a live view, elsewhere as one line a step. */
export function showProgress(options: ProgressOptions = {}): LaunchObserver {
  const { output = process.stderr, clock = Date.now } = options
  const tally = new Tally(clock)
  if (output.isTTY !== true) return plainLines(tally, output)
  return liveView(tally, output)
}

function plainLines(tally: Tally, output: ProgressOutput): LaunchObserver {
  return {
    eventAppended: event => {
      tally.add(event)
      const text = textOf(event)
      if (text !== undefined) output.write(`${tally.elapsed()} ${text}\n`)
    },
    launchEnded: () => output.write(`${tally.summary()}\n`),
  }
}

const TICK_MS = 1_000
const ITEMS_SHOWN = 8

function liveView(tally: Tally, output: ProgressOutput): LaunchObserver {
  let drawn = 0
  let timer: NodeJS.Timeout | undefined
  const draw = (): void => {
    const { columns = 80 } = output
    const items = tally.runningItems()
    const more = items.length > ITEMS_SHOWN ? [`  … and ${items.length - ITEMS_SHOWN} more`] : []
    const lines = [tally.summary(), ...items.slice(0, ITEMS_SHOWN).map(item => `  ${item}`), ...more]
    // Cut, because a line that wraps would be two lines to redraw.
    const text = lines.map(line => `${line.slice(0, columns - 1)}\n`).join('')
    output.write(`${drawn > 0 ? `\x1b[${drawn}A\x1b[J` : ''}${text}`)
    drawn = lines.length
  }
  return {
    launchStarted: () => {
      // The elapsed time changes even while nothing happens.
      timer = setInterval(draw, TICK_MS).unref()
    },
    eventAppended: event => {
      tally.add(event)
      draw()
    },
    launchEnded: () => {
      clearInterval(timer)
      draw()
    },
  }
}

/** The counts of a launch since this process started it. */
class Tally {
  readonly #clock: () => number
  readonly #startedAt: number
  #state = ''
  #finished = 0
  #failed = 0
  #tokens = 0
  #costUsd = 0
  #openIssues = 0
  readonly #running = new Set<string>()

  constructor(clock: () => number) {
    this.#clock = clock
    this.#startedAt = clock()
  }

  add(event: LaunchEvent): void {
    switch (event.type) {
      case 'RUN_CREATED':
        this.#state = 'CREATED'
        return
      case 'RUN_STATE_CHANGED':
        this.#state = event.payload.new_state
        return
      case 'RESUME_REWIND':
        this.#state = event.payload.to_state
        return
      case 'RUN_RESUMED':
        this.#state = event.payload.from_state
        return
      case 'WORK_ITEM_STARTED':
        this.#running.add(event.payload.work_item_id)
        return
      case 'WORK_ITEM_FINISHED':
        this.#running.delete(event.payload.work_item_id)
        this.#finished++
        return
      case 'WORK_ITEM_FAILED':
        this.#running.delete(event.payload.work_item_id)
        this.#failed++
        return
      case 'ISSUE_OPENED':
        this.#openIssues++
        return
      case 'ISSUE_RESOLVED':
        this.#openIssues--
        return
      case 'LLM_CALL_FINISHED':
        if (event.payload.cached) return
        this.#tokens += event.payload.token_usage.total_tokens
        this.#costUsd += event.payload.api_cost_usd ?? 0
    }
  }

  runningItems(): readonly string[] {
    return [...this.#running].map(nameOf)
  }

  elapsed(): string {
    const seconds = Math.floor((this.#clock() - this.#startedAt) / 1_000)
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`
  }

  summary(): string {
    const parts = [
      `${this.elapsed()} ${this.#state}`,
      `${this.#finished} done, ${this.#running.size} running, ${this.#failed} failed`,
      ...(this.#openIssues > 0 ? [`${this.#openIssues} open issues`] : []),
      `${this.#tokens} tokens`,
      `$${this.#costUsd.toFixed(4)}`,
    ]
    return parts.join(' · ')
  }
}

function nameOf(workItemId: string): string {
  const { worker, scope_key } = workOf(workItemId)
  return scope_key === NO_SCOPE ? worker : `${worker} ${scope_key}`
}

function textOf(event: LaunchEvent): string | undefined {
  switch (event.type) {
    case 'RUN_STATE_CHANGED':
      return event.payload.new_state
    case 'WORK_ITEM_FINISHED':
      return `  ${nameOf(event.payload.work_item_id)}: done`
    case 'WORK_ITEM_FAILED':
      return `  ${nameOf(event.payload.work_item_id)}: ${event.payload.error.message}`
    case 'ISSUE_OPENED':
      return `  ${event.payload.issue.severity}: ${event.payload.issue.message}`
    case 'RUN_PAUSED':
      return 'paused'
    case 'RUN_RESUMED':
      return `continues in ${event.payload.from_state}`
    default:
      return undefined
  }
}
