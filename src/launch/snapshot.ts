import { canonicalJson } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import type { Disk } from '../disk/disk.ts'
import { readFile, replaceFile } from '../disk/durable-file.ts'
import { contractProblems } from './contracts.ts'
import type { ArtifactEntry, LaunchSnapshot, LogSeal, NamedArtifact, WorkItem } from './events.ts'
import type { LaunchState } from './launch-state.ts'
import { SNAPSHOT_FILE } from './run-folder.ts'

export function snapshotOf({ memory: _, artifacts, ...state }: LaunchState, log: LogSeal): LaunchSnapshot {
  return { schema_version: 1, ...state, artifacts_index: indexOf(artifacts), log }
}

/** Canonical JSON and one LF. */
export function snapshotText(snapshot: LaunchSnapshot): string {
  return `${canonicalJson(snapshot)}\n`
}

/** Writes it so that a reader sees this one or the one before, and reads it back: what can't be read is no snapshot. */
export async function writeSnapshot(disk: Disk, snapshot: LaunchSnapshot): Promise<void> {
  const problems = contractProblems('snapshot', snapshot)
  invariant(problems.length === 0, `a snapshot is as its contract says: ${problems[0]?.path}`)
  const bytes = Buffer.from(snapshotText(snapshot))
  await replaceFile(disk, SNAPSHOT_FILE, bytes)
  if (readFile(disk, SNAPSHOT_FILE)?.equals(bytes) === true) return
  throw new AnnalsError('CORRUPT', `${SNAPSHOT_FILE} is not what was written to it`, { file: SNAPSHOT_FILE })
}

export type ReadSnapshot =
  | { readonly kind: 'missing' }
  /** There is something, but no snapshot: the log has to be replayed. */
  | { readonly kind: 'invalid'; readonly reason: string }
  | { readonly kind: 'read'; readonly snapshot: LaunchSnapshot; readonly text: string }

/** Of a later version is `FORMAT_TOO_NEW`, of another run `CORRUPT`; what is damaged is a result. */
export function readSnapshot(disk: Disk, runId: string): ReadSnapshot {
  const bytes = readFile(disk, SNAPSHOT_FILE)
  if (bytes === undefined) return { kind: 'missing' }
  const text = bytes.toString('utf8')
  const path = SNAPSHOT_FILE
  let value: unknown
  try {
    value = inOurWords(JSON.parse(text))
  } catch (error) {
    return { kind: 'invalid', reason: String(error) }
  }
  const { schema_version, run_id } = Object(value) as Partial<Record<string, unknown>>
  if (typeof schema_version === 'number' && schema_version > 1) {
    const message = `${path} has schema_version ${schema_version}; this version of Annals knows 1: update it`
    throw new AnnalsError('FORMAT_TOO_NEW', message, { file: path, schemaVersion: schema_version })
  }
  if (typeof run_id === 'string' && run_id !== runId) {
    const message = `${path} is of run ${JSON.stringify(run_id)}: put back that of this run, or remove it and it is made anew`
    throw new AnnalsError('CORRUPT', message, { file: path, runId, found: run_id })
  }
  const [problem] = contractProblems('snapshot', value)
  if (problem !== undefined) return { kind: 'invalid', reason: `${problem.path} ${problem.message}` }
  return { kind: 'read', snapshot: value as LaunchSnapshot, text }
}

const STATUSES: Readonly<Record<string, string>> = {
  pending: 'queued',
  in_progress: 'running',
  IN_PROGRESS: 'running',
  completed: 'finished',
}

/** ND6: others write the same things in other words, and `artifacts` as a list. */
export function inOurWords(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  const { artifacts, ...snapshot } = value as Record<string, unknown>
  return {
    ...snapshot,
    ...(Array.isArray(artifacts) && snapshot['artifacts_index'] === undefined
      ? { artifacts_index: indexOf(artifacts) }
      : {}),
    ...(Array.isArray(snapshot['work_items'])
      ? { work_items: snapshot['work_items'].map((item: unknown) => itemInOurWords(item)) }
      : {}),
  }
}

function indexOf(artifacts: readonly NamedArtifact[]): Record<string, ArtifactEntry> {
  return Object.fromEntries(artifacts.map(({ name, ...entry }) => [name, entry]))
}

function itemInOurWords(item: unknown): unknown {
  const { status } = Object(item) as Partial<WorkItem>
  if (status === undefined || !Object.hasOwn(STATUSES, status)) return item
  return { ...(item as WorkItem), status: STATUSES[status] }
}
