import { durationText } from '../core/vocabulary.ts'
import type { StepSnapshot } from '../index.ts'
import { safeJson } from './safe-text.ts'
import { statusColumn } from './status-text.ts'
import { type Column, printTable } from './table.ts'
import type { Terminal } from './terminal.ts'

/** Prints the steps of a run in the order in which they first appeared. */
export async function printSteps(terminal: Terminal, steps: readonly StepSnapshot[]): Promise<void> {
  const columns: Column<StepSnapshot>[] = [
    { title: 'STEP', text: step => step.stepId },
    statusColumn(terminal.colors, step => step.status),
    { title: 'ATTEMPT', text: step => String(step.logicalAttemptId), alignRight: true },
    { title: 'TOOK', text: tookText, alignRight: true },
  ]
  if (steps.some(step => errorText(step) !== '')) columns.push({ title: 'ERROR', text: errorText })
  await printTable(terminal, steps, columns)
}

function tookText({ startedAt, completedAt }: StepSnapshot): string {
  if (startedAt === undefined || completedAt === undefined) return ''
  return durationText(Date.parse(completedAt) - Date.parse(startedAt))
}

/** The error of a step that failed, or of the attempt before the current one. A step that succeeded has no error. */
function errorText({ status, error, attempts }: StepSnapshot): string {
  if (status === 'SUCCESS') return ''
  if (error !== undefined) return messageOf(error)
  const before = attempts.at(-1)
  if (before?.error === undefined) return ''
  return `attempt ${before.logicalAttemptId}: ${messageOf(before.error)}`
}

function messageOf(error: unknown): string {
  if (typeof error === 'string') return error
  const { message } = (error ?? {}) as { readonly message?: unknown }
  return typeof message === 'string' ? message : safeJson(error)
}
