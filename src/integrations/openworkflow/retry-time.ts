import type { RetryPolicy } from 'openworkflow'

const SECOND_MS = 1_000
const MINUTE_MS = 60 * SECOND_MS
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS
/** A year of 365.25 days, as in OpenWorkflow. */
const YEAR_MS = 365.25 * DAY_MS

/** The units of OpenWorkflow's durations. */
const UNITS: ReadonlyMap<string, number> = new Map(
  (
    [
      [1, ['millisecond', 'milliseconds', 'msec', 'msecs', 'ms']],
      [SECOND_MS, ['second', 'seconds', 'sec', 'secs', 's']],
      [MINUTE_MS, ['minute', 'minutes', 'min', 'mins', 'm']],
      [HOUR_MS, ['hour', 'hours', 'hr', 'hrs', 'h']],
      [DAY_MS, ['day', 'days', 'd']],
      [7 * DAY_MS, ['week', 'weeks', 'w']],
      [YEAR_MS / 12, ['month', 'months', 'mo']],
      [YEAR_MS, ['year', 'years', 'yr', 'yrs', 'y']],
    ] as const
  ).flatMap(([ms, names]) => names.map(name => [name, ms] as const)),
)

/** When a run that has failed in its attempt with this number (from 1) is tried again; undefined if it is not. */
export function retryTime(
  policy: Readonly<RetryPolicy>,
  attempts: number,
  deadlineAt: number | null,
  now: number,
): number | undefined {
  if (policy.maximumAttempts > 0 && attempts >= policy.maximumAttempts) return undefined
  const delayMs = durationMs(policy.initialInterval) * policy.backoffCoefficient ** Math.max(0, attempts - 1)
  const time = Math.floor(now + Math.min(delayMs, durationMs(policy.maximumInterval)))
  return deadlineAt !== null && time >= deadlineAt ? undefined : time
}

/** The milliseconds of a duration such as '5 seconds'; 0 if it is invalid, as in OpenWorkflow. */
function durationMs(text: string): number {
  const match = /^(-?\.?\d+(?:\.\d+)?)\s*([a-z]+)?$/i.exec(text)
  if (match === null) return 0
  return Number.parseFloat(match[1]) * (UNITS.get((match[2] ?? 'ms').toLowerCase()) ?? 0)
}
