import { z } from '@hono/zod-openapi'
import { AnnalsError } from '../core/errors.ts'
import { isUuidV4 } from '../core/id.ts'
import { type JsonMap, TELEMETRY_STATUSES } from '../telemetry/model.ts'
import {
  COMMIT_SOURCES,
  COUNTS,
  foldStatus,
  isName,
  JSON_FIELDS,
  NAME_BYTES_MAX,
  OPTIONAL_TEXTS,
  OPTIONAL_TIMES,
  PATCHED_FIELDS,
  REQUIRED_TEXTS,
} from '../telemetry/run-record.ts'
import { normalTime } from '../telemetry/run-time.ts'
import { isLost, jsonProblem, LOST_NUMBER, parseTelemetryJson } from './telemetry-json.ts'

/** The rules of the fields, for checking and for the OpenAPI document. */

const TIME_EXAMPLE = '2026-11-15T03:30:00.000Z'

const text = z
  .string()
  .refine(value => !isLost(value), LOST_NUMBER)
  .refine(value => value.isWellFormed(), 'has a lone surrogate')

const name = text
  .min(1, 'must not be empty')
  .refine(isName, `must be at most ${NAME_BYTES_MAX} bytes, without U+0000`)

const time = z
  .string()
  .transform((value, context) => {
    const normal = normalTime(value)
    if (normal !== undefined) return normal
    context.addIssue(`must be a time with an offset, such as ${TIME_EXAMPLE}`)
    return z.NEVER
  })
  .openapi({ type: 'string', format: 'date-time', example: TIME_EXAMPLE })

const count = z
  .number()
  .refine(Number.isSafeInteger, 'must be a whole number')
  .refine(value => value >= 0, 'must not be negative')
  .openapi({ type: 'integer', minimum: 0 })

const status = z.enum(TELEMETRY_STATUSES, {
  error: `must be one of ${TELEMETRY_STATUSES.join(', ')}`,
})

const foldedStatus = z
  .string()
  .transform(foldStatus)
  .pipe(status)
  .openapi({ type: 'string', enum: [...TELEMETRY_STATUSES], default: 'running' })

const json = z
  .unknown()
  .transform((value, context): JsonMap => {
    const parsed = typeof value === 'string' ? parsedOrText(value) : value
    const problem =
      typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)
        ? 'must be an object, or text that holds one'
        : jsonProblem(parsed)
    if (problem === undefined) return parsed as JsonMap
    context.addIssue(problem)
    return z.NEVER
  })
  .openapi({ type: 'object', additionalProperties: true })

const eventId = z
  .string()
  .refine(isUuidV4, 'must be a UUID v4')
  .openapi({ format: 'uuid', example: '7e6a9f53-7c9b-4d0e-9a56-6b1f2d3c4e5f' })

const commitHash = z
  .string()
  .regex(/^[0-9a-f]{7,40}$/i, 'must be 7 to 40 hexadecimal digits')
  .openapi({ example: 'abcdef1' })
const commitSource = z.enum(COMMIT_SOURCES, { error: `must be one of ${COMMIT_SOURCES.join(', ')}` })

type Shape = Record<string, z.ZodType>

function each(names: readonly string[], rule: z.ZodType): Shape {
  return Object.fromEntries(names.map(each => [each, rule]))
}

function optional(shape: Shape): Shape {
  return Object.fromEntries(Object.entries(shape).map(([field, rule]) => [field, rule.optional()]))
}

const optionalFields: Shape = optional({
  created_at: time,
  status: foldedStatus,
  ...each(OPTIONAL_TEXTS, text),
  parent_run_id: name,
  ...each(COUNTS, count),
  ...each(OPTIONAL_TIMES, time),
  ...each(JSON_FIELDS, json),
  api_posted: z.boolean(),
})

/** The body of a POST. */
export const NEW_RUN: z.ZodObject<Shape> = z
  .object({
    event_id: eventId,
    ...each(REQUIRED_TEXTS, name),
    start_time: time,
    ...optionalFields,
  })
  .openapi('TelemetryRun')

const patched: Shape = {
  ...optionalFields,
  status: status.optional(),
  git_commit_source: commitSource.optional(),
  git_commit_author: text.optional(),
  git_commit_timestamp: time.optional(),
}

/** The body of a PATCH. */
export const RUN_CHANGE: z.ZodObject<Shape> = z
  .object(Object.fromEntries(PATCHED_FIELDS.map(field => [field, patched[field]])))
  .openapi('TelemetryChange')

export const COMMIT: z.ZodObject<Shape> = z
  .object({
    commit_hash: commitHash,
    commit_source: commitSource,
    commit_author: text.optional(),
    commit_timestamp: time.optional(),
  })
  .openapi('TelemetryCommit')

/** Text that is not JSON stays text, which is then refused. */
function parsedOrText(value: string): unknown {
  try {
    return parseTelemetryJson(value)
  } catch (error) {
    if (error instanceof AnnalsError) return value
    throw error
  }
}
