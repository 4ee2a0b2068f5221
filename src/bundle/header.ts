import type { ByteString } from '../core/bytes.ts'
import { canonicalJsonBytes } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkTags, checkText } from '../core/text.ts'
import { decodeValue, type Value } from '../core/value.ts'
import { DEFAULT_PART, namespace, resolveScope } from '../engine/keys.ts'
import { checkStatus, type Run } from '../primitives/run.ts'
import { BUNDLE_VERSION, type BundleHeader, LINE_LIMITS, type LogLength } from './lines.ts'

const HASH = /^[0-9a-f]{64}$/
const NO_HEAD = '0'.repeat(64)
const ID_BYTES_MAX = 256

/** The header that a parsed line is; whatever is wrong with it is an `AnnalsError`. */
export function headerIn(parsed: Readonly<Record<string, unknown>>): BundleHeader {
  const version = parsed['annals-bundle']
  if (version === undefined) throw corrupt('it is no header of a bundle')
  if (version !== BUNDLE_VERSION) {
    const message = `the bundle is of version ${JSON.stringify(version)}, this program reads ${BUNDLE_VERSION}: take a newer one`
    throw new AnnalsError('FORMAT_TOO_NEW', message, {
      version,
      known: BUNDLE_VERSION,
      line: 1,
      reason: message,
    })
  }
  const { runId, tenant, place, run, events, records } = parsed
  const { app, agent } = (place ?? {}) as Readonly<Record<string, unknown>>
  const parts = { app: app ?? DEFAULT_PART, agent: agent ?? DEFAULT_PART, runId, tenant }
  for (const [name, part] of Object.entries(parts)) checkText(name, part, { bytesMax: ID_BYTES_MAX })
  const names = { runId: runId as string, ...namedPart('app', parts.app), ...namedPart('agent', parts.agent) }
  return {
    ...names,
    tenant: tenant as string,
    run: run === null ? null : runIn(run, names),
    events: lengthIn('events', events),
    records: lengthIn('records', records),
  }
}

/** There is one way to write a name, and `default` is not written. */
function namedPart(name: 'app' | 'agent', part: unknown): { readonly [name: string]: string } {
  return part === DEFAULT_PART ? {} : { [name]: part as string }
}

/** The scope in which the run of a bundle lives. */
export function scopeOfBundle({
  tenant,
  runId,
  app = DEFAULT_PART,
  agent = DEFAULT_PART,
}: BundleHeader): ByteString {
  return resolveScope(tenant, namespace({ tenant, app, agent, run: runId }))
}

function lengthIn(name: string, value: unknown): LogLength {
  const { count, head } = (value ?? {}) as Partial<LogLength>
  const isCount = Number.isSafeInteger(count) && (count as number) >= 0
  const isHead = typeof head === 'string' && HASH.test(head) && (count !== 0 || head === NO_HEAD)
  if (isCount && isHead) return { count: count as number, head }
  throw corrupt(`${name} in the header is no count with a hash`)
}

/** Of the index: it is written as it is, so it has to be one. */
function runIn(given: unknown, { runId, app, agent }: Pick<Run, 'runId' | 'app' | 'agent'>): Run {
  const run = decodeValue(canonicalJsonBytes(given, LINE_LIMITS)) as Partial<Record<keyof Run, Value>>
  if (typeof run !== 'object' || run === null) throw corrupt('run in the header is no object')
  for (const name of Object.keys(run))
    if (!FIELDS.has(name)) throw corrupt(`run.${name} is no field of a run`)
  checkStatus(run.status)
  checkTags(run.tags)
  if (run.runId !== runId || run.app !== app || run.agent !== agent) {
    throw corrupt('run in the header is of another run')
  }
  if (run.metadata === undefined) throw corrupt('run.metadata is missing')
  for (const name of ['createdAt', 'updatedAt', 'completedAt'] as const) {
    const time = run[name]
    if (time === undefined && name === 'completedAt') continue
    if (!Number.isSafeInteger(time) || (time as number) < 0) throw corrupt(`run.${name} is no time`)
  }
  if (run.error !== undefined && typeof run.error !== 'string') throw corrupt('run.error is no text')
  if (run.parentRun !== undefined) checkText('run.parentRun', run.parentRun, { bytesMax: ID_BYTES_MAX })
  return run as unknown as Run
}

const FIELDS: ReadonlySet<string> = new Set<keyof Run>([
  'runId',
  'app',
  'agent',
  'parentRun',
  'status',
  'createdAt',
  'updatedAt',
  'completedAt',
  'tags',
  'metadata',
  'error',
])

function corrupt(reason: string): AnnalsError {
  return new AnnalsError('CORRUPT', reason)
}
