import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkTags, checkText } from '../core/text.ts'
import type { Value } from '../core/value.ts'
import { DEFAULT_PART, namespace, resolveScope } from '../engine/keys.ts'
import { checkStatus, type Run, type RunHead } from '../primitives/run.ts'
import type { RunRecord } from '../primitives/run-records.ts'
import { BUNDLE_VERSION, type BundleHeader, canonicalMetadata, type LogLength } from './lines.ts'

const HASH = /^[0-9a-f]{64}$/
const NO_HEAD = '0'.repeat(64)
const ID_BYTES_MAX = 256

/** Checks the decoded first line of a bundle, and returns it as a header. Throws an `AnnalsError` that says what is wrong. */
export async function headerIn(parsed: Readonly<Record<string, unknown>>): Promise<BundleHeader> {
  const version = parsed['annals-bundle']
  if (version === undefined) throw corrupt('this is not the header of a bundle')
  if (version !== BUNDLE_VERSION) {
    const message = `the bundle has version ${JSON.stringify(version)}, but this program reads only ${BUNDLE_VERSION}: use a newer one`
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
    run: run === null ? null : await runIn(run, names),
    events: lengthIn('events', events),
    records: lengthIn('records', records),
  }
}

/** The name `default` is left out, so that there is one way to write each place. */
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
  throw corrupt(`${name} in the header must be a count and a hash`)
}

/** Checks the run's record, because an import stores it as it is. */
async function runIn(
  given: unknown,
  { runId, app, agent }: Pick<Run, 'runId' | 'app' | 'agent'>,
): Promise<RunRecord> {
  if (typeof given !== 'object' || given === null) throw corrupt('run in the header is not an object')
  const run = given as Partial<Record<keyof Run, Value>>
  for (const name of Object.keys(run))
    if (!FIELDS.has(name)) throw corrupt(`run.${name} is not a field of a run`)
  checkStatus(run.status)
  checkTags(run.tags)
  if (run.runId !== runId || run.app !== app || run.agent !== agent) {
    throw corrupt('run in the header is another run')
  }
  if (run.metadata === undefined) throw corrupt('run.metadata is missing')
  for (const name of ['createdAt', 'updatedAt', 'completedAt'] as const) {
    const time = run[name]
    if (time === undefined && name === 'completedAt') continue
    if (!Number.isSafeInteger(time) || (time as number) < 0) throw corrupt(`run.${name} is not a time`)
  }
  if (run.error !== undefined && typeof run.error !== 'string') throw corrupt('run.error is not a string')
  if (run.parentRun !== undefined) checkText('run.parentRun', run.parentRun, { bytesMax: ID_BYTES_MAX })
  const { metadata, ...head } = run
  return { head: head as unknown as RunHead, metadata: await canonicalMetadata(metadata) }
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
