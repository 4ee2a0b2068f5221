import type { Command } from 'commander'
import { timeText } from '../core/vocabulary.ts'
import type { StoredTrace } from '../index.ts'
import { type Context, type Read, withExamples, withJson, withStore } from './command.ts'
import { lookUpRun } from './run-lookup.ts'
import { cutTo, safeJson, safeText } from './safe-text.ts'
import { reading } from './store-access.ts'
import type { Terminal } from './terminal.ts'

export function addTraces(program: Command, context: Context): void {
  const command = program
    .command('traces')
    .argument('<run>', 'id of the run')
    .description("show a run's thoughts, decisions and tool calls as trees")
    .action((runId: string, options: Read) => printTraces(runId, options, context))
  withJson(withStore(command))
  withExamples(command, [
    { type: 'traces research-42', for: 'as trees' },
    { type: 'traces research-42 --json', for: 'as a list, ordered by time' },
  ])
}

async function printTraces(runId: string, options: Read, { terminal }: Context): Promise<void> {
  const traces = await reading(options, terminal, async source => {
    const found = await source.traces.queryByTime(runId, 0, Number.POSITIVE_INFINITY)
    // A run may have traces and nothing else, so only a run without traces is looked up.
    if (found.length === 0) await lookUpRun(source, runId)
    return found
  })
  if (options.json === true) return terminal.json(traces)
  if (traces.length === 0) {
    terminal.note('this run has no traces')
    return
  }
  const ids = new Set(traces.map(({ id }) => id))
  const childrenOf = new Map<string | undefined, StoredTrace[]>()
  for (const trace of traces) {
    const parent = trace.parentId !== undefined && ids.has(trace.parentId) ? trace.parentId : undefined
    const siblings = childrenOf.get(parent)
    if (siblings === undefined) childrenOf.set(parent, [trace])
    else siblings.push(trace)
  }
  // Without recursion: a chain of traces may be longer than the call stack.
  const waiting = [...(childrenOf.get(undefined) ?? [])].reverse().map(trace => ({ trace, depth: 0 }))
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    await terminal.line(lineOf(terminal, next.trace, next.depth))
    const children = childrenOf.get(next.trace.id) ?? []
    for (const trace of [...children].reverse()) waiting.push({ trace, depth: next.depth + 1 })
  }
}

const INDENT_MAX = 20

function lineOf(terminal: Terminal, { trace, timestamp, tags }: StoredTrace, depth: number): string {
  const { dim, bold } = terminal.colors
  const indent = '  '.repeat(Math.min(depth, INDENT_MAX))
  const time = timeText(timestamp)
  const { type, ...content } = trace
  const name = safeText(type)
  const tagged = tags.length === 0 ? '' : ` ${safeText(tags.map(tag => `#${tag}`).join(' '))}`
  const taken = time.length + 2 + indent.length + name.length + tagged.length + 2
  const room =
    terminal.columns === undefined ? Number.POSITIVE_INFINITY : Math.max(8, terminal.columns - taken)
  return `${dim(time)}  ${indent}${bold(name)}${dim(tagged)}  ${cutTo(safeJson(content), room)}`
}
