import { safeText } from './safe-text.ts'
import type { Terminal } from './terminal.ts'

/** How times, lengths and states are said to people. */

const TIME_MAX_MS = 8.64e15

/** Whatever the number is: it may have been stored by somebody who meant something else. */
export function timeText(ms: number): string {
  if (!Number.isFinite(ms) || Math.abs(ms) > TIME_MAX_MS) return `${ms} ms`
  return new Date(ms)
    .toISOString()
    .replace('T', ' ')
    .replace(/\.\d+Z$/, 'Z')
}

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS

export function durationText(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < MINUTE_MS) return `${(ms / 1_000).toFixed(1)} s`
  if (ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min ${Math.round((ms % MINUTE_MS) / 1_000)} s`
  if (ms >= 2 * DAY_MS) return `${Math.floor(ms / DAY_MS)} d ${Math.floor((ms % DAY_MS) / HOUR_MS)} h`
  return `${Math.floor(ms / HOUR_MS)} h ${Math.round((ms % HOUR_MS) / MINUTE_MS)} min`
}

export function countText(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`
}

const GOOD = new Set(['Completed', 'COMPLETED', 'SUCCESS', 'CONSISTENT'])
const BAD = new Set(['Failed', 'FAILED', 'INCONSISTENT'])
const BUSY = new Set(['Active', 'RUNNING'])

/** A status in the colour that people expect. */
export function paintStatus(
  colors: Terminal['colors'],
  status: string,
  text: string = safeText(status),
): string {
  if (GOOD.has(status)) return colors.green(text)
  if (BAD.has(status)) return colors.red(text)
  return BUSY.has(status) ? colors.cyan(text) : colors.yellow(text)
}
