import { TELEMETRY_STATUSES, type TelemetryStatus } from '../telemetry/model.ts'
import { foldStatus, STATUS_ALIASES } from '../telemetry/run-record.ts'
import type { RunSelection } from '../telemetry/run-selection.ts'
import { parseTime } from '../telemetry/run-time.ts'
import { type FieldProblem, TelemetryProblem } from './telemetry-problem.ts'

export const NAME_FILTERS = ['agent_name', 'job_type', 'parent_run_id', 'run_id'] as const
export const TIME_FILTERS = ['created_before', 'created_after', 'start_time_from', 'start_time_to'] as const
export const LIMIT_MAX = 1000
export const LIMIT_DEFAULT = 100

/** The filters of a list of runs. An invalid status or time is a 400, an invalid limit or offset a 422. */
export function selectionOf(query: URLSearchParams): RunSelection {
  const problems: FieldProblem[] = []
  const known = [...NAME_FILTERS, ...TIME_FILTERS, 'status', 'limit', 'offset']
  for (const name of known.filter(each => query.getAll(each).length > 1)) {
    problems.push({ loc: ['query', name], msg: 'given more than once', type: 'value_error' })
  }
  const whole = (name: string, min: number, max: number, otherwise: number): number => {
    const text = query.get(name)
    if (text === null) return otherwise
    const number = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
    if (number >= min && number <= max) return number
    const to = max === Number.MAX_SAFE_INTEGER ? `, ${min} or more` : ` from ${min} to ${max}`
    problems.push({ loc: ['query', name], msg: `must be a whole number${to}`, type: 'value_error' })
    return otherwise
  }
  const limit = whole('limit', 1, LIMIT_MAX, LIMIT_DEFAULT)
  const offset = whole('offset', 0, Number.MAX_SAFE_INTEGER, 0)
  if (problems.length > 0) throw new TelemetryProblem(422, problems)
  const names = NAME_FILTERS.map(name => [name, query.get(name)] as const)
  const times = TIME_FILTERS.map(name => [name, timeOf(name, query.get(name))] as const)
  const status = ['status', statusOf(query.get('status'))] as const
  const given = [...names, ...times, status].filter(([, value]) => value !== null)
  return { ...Object.fromEntries(given), limit, offset }
}

function statusOf(text: string | null): TelemetryStatus | null {
  if (text === null) return null
  const status = foldStatus(text) as TelemetryStatus
  if (TELEMETRY_STATUSES.includes(status)) return status
  const words = [...TELEMETRY_STATUSES, ...STATUS_ALIASES].join(', ')
  throw new TelemetryProblem(400, `status must be one of ${words}`)
}

function timeOf(name: string, text: string | null): number | null {
  if (text === null) return null
  const ms = parseTime(text)
  if (ms !== undefined) return ms
  const hint = / \d{2}:\d{2}$/.test(text) ? ' (in a query, write + as %2B)' : ''
  throw new TelemetryProblem(
    400,
    `${name} must be a time with an offset, such as 2026-11-15T03:30:00Z${hint}`,
  )
}
