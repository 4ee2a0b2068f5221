import { canonicalJson } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import type { Disk } from '../disk/disk.ts'
import { readFile, replaceFile } from '../disk/durable-file.ts'
import { contractProblems } from './contracts.ts'
import type { ArtifactEntry, LaunchSnapshot, LogSeal, NamedArtifact, WorkItem } from './events.ts'
import type { LaunchState } from './launch-state.ts'
import { SNAPSHOT_FILE } from './run-folder.ts'

/** The snapshot of a state. */
export function snapshotOf({ memory: _, artifacts, ...state }: LaunchState, log: LogSeal): LaunchSnapshot {
  return { schema_version: 1, ...state, artifacts_index: indexOf(artifacts), log }
}

/** The bytes of a snapshot's file: canonical JSON and one LF. */
export function snapshotText(snapshot: LaunchSnapshot): string {
  return `${canonicalJson(snapshot)}\n`
}

/** Replaces the snapshot atomically, and reads it back to be sure that it can be read. */
export async function writeSnapshot(disk: Disk, snapshot: LaunchSnapshot): Promise<void> {
  const problems = contractProblems('snapshot', snapshot)
  invariant(problems.length === 0, `snapshots are valid: ${problems[0]?.path}`)
  const bytes = Buffer.from(snapshotText(snapshot))
  await replaceFile(disk, SNAPSHOT_FILE, bytes)
  if (readFile(disk, SNAPSHOT_FILE)?.equals(bytes) === true) return
  throw new AnnalsError('CORRUPT', `${SNAPSHOT_FILE} does not have the content that was written`, {
    file: SNAPSHOT_FILE,
  })
}

/** The result of reading a snapshot. */
export type ReadSnapshot =
  | { readonly kind: 'missing' }
  /** The file is damaged. The log has to be replayed. */
  | { readonly kind: 'invalid'; readonly reason: string }
  | { readonly kind: 'read'; readonly snapshot: LaunchSnapshot; readonly text: string }

/** Throws `FORMAT_TOO_NEW` for the snapshot of a later version and `CORRUPT` for that of another run. */
export function readSnapshot(disk: Disk, runId: string): ReadSnapshot {
  const bytes = readFile(disk, SNAPSHOT_FILE)
  if (bytes === undefined) return { kind: 'missing' }
  const text = bytes.toString('utf8')
  const path = SNAPSHOT_FILE
  let value: unknown
  try {
    value = normalized(JSON.parse(text))
  } catch (error) {
    return { kind: 'invalid', reason: String(error) }
  }
  const { schema_version, run_id } = Object(value) as Partial<Record<string, unknown>>
  if (typeof schema_version === 'number' && schema_version > 1) {
    const message = `${path} has schema_version ${schema_version}; this version of Annals reads 1: update Annals`
    throw new AnnalsError('FORMAT_TOO_NEW', message, { file: path, schemaVersion: schema_version })
  }
  if (typeof run_id === 'string' && run_id !== runId) {
    const message = `${path} belongs to run ${JSON.stringify(run_id)}: restore the file of this run, or remove it`
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

/** ND6: translates other names for the same things: statuses such as `pending`, and `artifacts` as a list. */
export function normalized(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  const { artifacts, ...snapshot } = value as Record<string, unknown>
  return {
    ...snapshot,
    ...(Array.isArray(artifacts) && snapshot['artifacts_index'] === undefined
      ? { artifacts_index: indexOf(artifacts) }
      : {}),
    ...(Array.isArray(snapshot['work_items'])
      ? { work_items: snapshot['work_items'].map((item: unknown) => normalizedItem(item)) }
      : {}),
  }
}

function indexOf(artifacts: readonly NamedArtifact[]): Record<string, ArtifactEntry> {
  return Object.fromEntries(artifacts.map(({ name, ...entry }) => [name, entry]))
}

function normalizedItem(item: unknown): unknown {
  const { status } = Object(item) as Partial<WorkItem>
  if (status === undefined || !Object.hasOwn(STATUSES, status)) return item
  return { ...(item as WorkItem), status: STATUSES[status] }
}
