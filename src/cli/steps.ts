import type { StepSnapshot } from '../index.ts'
import { safeJson } from './safe-text.ts'
import { type Column, printTable } from './table.ts'
import type { Terminal } from './terminal.ts'
import { durationText, paintStatus } from './words.ts'

/** The steps of a run in the order in which they appeared. */
export async function printSteps(terminal: Terminal, steps: readonly StepSnapshot[]): Promise<void> {
  const columns: Column<StepSnapshot>[] = [
    { title: 'STEP', text: step => step.stepId },
    {
      title: 'STATUS',
      text: step => step.status,
      paint: (text, step) => paintStatus(terminal.colors, step.status, text),
    },
    { title: 'TRY', text: step => String(step.logicalAttemptId), alignRight: true },
    { title: 'TOOK', text: tookText, alignRight: true },
  ]
  if (steps.some(hasError)) columns.push({ title: 'ERROR', text: errorText })
  await printTable(terminal, steps, columns)
}

function tookText({ startedAt, completedAt }: StepSnapshot): string {
  if (startedAt === undefined || completedAt === undefined) return ''
  return durationText(Date.parse(completedAt) - Date.parse(startedAt))
}

function hasError({ error, attempts }: StepSnapshot): boolean {
  return error !== undefined || attempts.some(attempt => attempt.error !== undefined)
}

/** Its own, or that of the attempt before, which is why there is another one. */
function errorText({ error, attempts }: StepSnapshot): string {
  const last = error ?? attempts.at(-1)?.error
  if (last === undefined) return ''
  if (typeof last === 'string') return last
  const { message } = last as { readonly message?: unknown }
  return typeof message === 'string' ? message : safeJson(last)
}
