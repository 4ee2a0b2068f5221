import type { z } from '@hono/zod-openapi'
import { withoutUndefined } from '../core/options.ts'
import { isLost, LOST_NUMBER } from './telemetry-json.ts'
import { type FieldProblem, TelemetryProblem } from './telemetry-problem.ts'

export type Checked = { readonly fields: Record<string, unknown> } | { readonly problems: FieldProblem[] }

/** TD5: checks the fields of a body that the schema knows. Null counts as absent; unknown fields are ignored. */
export function check(schema: z.ZodObject, body: unknown, loc: readonly (string | number)[]): Checked {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    return { problems: [{ loc, msg: 'must be an object', type: 'type_error' }] }
  }
  const given = Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null))
  const parsed = schema.safeParse(given)
  if (parsed.success) return { fields: withoutUndefined(parsed.data) }
  return { problems: problemsIn(parsed.error.issues, given, loc) }
}

/** At most one problem per field. */
function problemsIn(
  issues: readonly z.core.$ZodIssue[],
  given: Record<string, unknown>,
  loc: readonly (string | number)[],
): FieldProblem[] {
  const problems = new Map<string, FieldProblem>()
  for (const { path, code, message } of issues) {
    const field = String(path[0])
    if (problems.has(field)) continue
    if (isLost(given[field])) {
      problems.set(field, { loc: [...loc, field], msg: LOST_NUMBER, type: 'value_error' })
      continue
    }
    const isMissing = code === 'invalid_type' && given[field] === undefined
    const type = isMissing ? 'missing' : code === 'invalid_type' ? 'type_error' : 'value_error'
    problems.set(field, { loc: [...loc, field], msg: isMissing ? 'required' : message, type })
  }
  return [...problems.values()]
}

/** The same, but throws a 422 for an invalid body. */
export function checked<T>(schema: z.ZodObject, body: unknown): T {
  const result = check(schema, body, ['body'])
  if ('problems' in result) throw new TelemetryProblem(422, result.problems)
  return result.fields as T
}
