import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { openNodeDisk } from '../../src/disk/node-disk.ts'
import { lineOf } from '../../src/launch/chain.ts'
import { contractProblems } from '../../src/launch/contracts.ts'
import { DOCS_STATES } from '../../src/launch/docs/pipeline.ts'
import { replayBytes, snapshotAt } from '../../src/launch/replay.ts'
import { normalized, readSnapshot, snapshotText, writeSnapshot } from '../../src/launch/snapshot.ts'
import { failureOf } from './failure-of.ts'
import { writeFullLog } from './written-log.ts'

const root = mkdtempSync(join(tmpdir(), 'annals-launch-log-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))
const newFolder = (): string => mkdtempSync(join(root, 'run-'))
const MISSING = { kind: 'missing' } as const

describe('snapshots', () => {
  test('N7: a replay up to the event of a live snapshot gives the same bytes', async () => {
    const { log, snapshots } = await writeFullLog()
    expect(snapshots.length).toBeGreaterThan(15)
    for (const live of snapshots) {
      const replayed = replayBytes(Buffer.from(log.text), 'run-1', DOCS_STATES, MISSING, live.log.events)
      expect(snapshotText(snapshotAt(replayed))).toBe(snapshotText(live))
    }
  })

  test('N5: a snapshot is written after every change of state and after the last event', async () => {
    const { events, snapshots } = await writeFullLog()
    const covered = new Set(snapshots.map(({ log }) => log.events))
    for (const [index, { type }] of events.entries()) {
      if (type === 'RUN_STATE_CHANGED' || type === 'RESUME_REWIND') expect(covered.has(index + 1)).toBe(true)
    }
    expect(covered.has(events.length)).toBe(true)
  })

  test('N6: a snapshot has its fields and is valid by its schema', async () => {
    const { events, snapshots } = await writeFullLog()
    const last = snapshots.at(-1)!
    expect(contractProblems('snapshot', last)).toEqual([])
    expect(Object.keys(last).sort()).toEqual([
      ...['artifacts_index', 'created_at', 'gates', 'generation', 'issues', 'log', 'paused', 'run_id'],
      ...['run_state', 'schema_version', 'section_states', 'updated_at', 'work_items'],
    ])
    expect(last.updated_at).toBe(events.at(-1)?.ts)
    expect(last.log.bytes).toBe(Buffer.byteLength(events.map(lineOf).join('')))
  })

  test('N6: the snapshot reveals a log that lost its end', async () => {
    const { log, snapshots } = await writeFullLog()
    const last = snapshots.at(-1)!
    const found = { kind: 'read', snapshot: last, text: snapshotText(last) } as const
    const shorter = log.text.slice(0, log.text.lastIndexOf('\n', log.text.length - 2) + 1)
    replayBytes(Buffer.from(shorter), 'run-1', DOCS_STATES, MISSING)
    expect(failureOf(() => replayBytes(Buffer.from(shorter), 'run-1', DOCS_STATES, found))).toMatchObject({
      code: 'EVENT_CHAIN_BROKEN',
    })
  })

  test('N8: a damaged snapshot is recognized', async () => {
    const { log, snapshots } = await writeFullLog()
    const folder = newFolder()
    const disk = openNodeDisk(folder)
    await writeSnapshot(disk, snapshots.at(-1)!)
    const good = replayBytes(Buffer.from(log.text), 'run-1', DOCS_STATES, readSnapshot(disk, 'run-1'))
    expect(good.snapshotProblem).toBeUndefined()
    const path = join(folder, 'snapshot.json')
    const text = readFileSync(path, 'utf8')
    for (const bad of [text.slice(1), text.replace('"DONE"', '"LINKING"'), 'null', '[]', '{}', '']) {
      writeFileSync(path, bad)
      const replayed = replayBytes(Buffer.from(log.text), 'run-1', DOCS_STATES, readSnapshot(disk, 'run-1'))
      expect(replayed.snapshotProblem).toBeDefined()
      expect(snapshotText(snapshotAt(replayed))).toBe(text)
    }
    writeFileSync(path, text.replaceAll('run-1', 'run-2'))
    expect(failureOf(() => readSnapshot(disk, 'run-1'))).toMatchObject({ code: 'CORRUPT' })
    writeFileSync(path, text.replace('"schema_version":1', '"schema_version":2'))
    expect(failureOf(() => readSnapshot(disk, 'run-1'))).toMatchObject({ code: 'FORMAT_TOO_NEW' })
    expect(readdirSync(folder)).toEqual(['snapshot.json'])
  })

  test('ND6: other words for the same statuses are translated', async () => {
    const { snapshots } = await writeFullLog()
    const { artifacts_index, work_items, ...rest } = snapshots.at(-1)!
    const theirs = { finished: 'completed', queued: 'pending', running: 'in_progress' } as Record<
      string,
      string
    >
    const foreign = {
      ...rest,
      artifacts: Object.entries(artifacts_index).map(([name, entry]) => ({ name, ...entry })),
      work_items: work_items.map(item => ({ ...item, status: theirs[item.status] ?? item.status })),
    }
    expect(normalized(foreign)).toEqual(snapshots.at(-1))
    expect(normalized({ work_items: [{ status: 'IN_PROGRESS' }] })).toEqual({
      work_items: [{ status: 'running' }],
    })
  })

  test('ND6: a failed item, an artifact and a resolved issue have their format on disk', async () => {
    const { snapshots } = await writeFullLog()
    const { work_items, artifacts_index, issues } = snapshots.at(-1)!
    expect(work_items.map(({ status }) => status)).toEqual(['failed', 'finished', 'skipped'])
    expect(work_items[0].finished_at).toBeDefined()
    expect(Object.keys(artifacts_index['drafts/intro']).sort()).toEqual([
      ...['event_id', 'path', 'schema_id', 'sha256', 'ts', 'writer_worker'],
    ])
    expect(issues[0]).toMatchObject({ status: 'RESOLVED', resolved_at: expect.any(String) })
  })
})
