import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { canonicalJson } from '../../src/core/canonical-json.ts'
import { AnnalsError } from '../../src/core/errors.ts'
import { open } from '../../src/index.ts'
import { eventHash, lineOf, verifyLog } from '../../src/launch/chain.ts'
import { CONTRACTS, contractProblems } from '../../src/launch/contracts.ts'
import { DatabaseLog } from '../../src/launch/log-database.ts'
import { FileLog } from '../../src/launch/log-file.ts'
import { replayBytes, snapshotAt } from '../../src/launch/replay.ts'
import { inOurWords, readSnapshot, snapshotText, writeSnapshot } from '../../src/launch/snapshot.ts'
import {
  checkStates,
  isLegalTransition,
  RUN_STATES,
  SECTION_STATES,
  type StateModel,
  stableStateOf,
} from '../../src/launch/states.ts'
import { gateway } from './small-launch.ts'
import { newJournal, rewritten, TYPES_SEEN_IN_RESTARTS, writeFullLog } from './written-log.ts'

const root = mkdtempSync(join(tmpdir(), 'annals-launch-log-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))
const newFolder = (): string => mkdtempSync(join(root, 'run-'))
const MISSING = { kind: 'missing' } as const
const CONTRACT_FILES = new URL('../../docs/contracts/', import.meta.url)

function failureOf(work: () => unknown): AnnalsError {
  try {
    work()
  } catch (error) {
    if (error instanceof AnnalsError) return error
    throw error
  }
  throw new Error('nothing was refused')
}

describe('states', () => {
  test('N1: there are the fifteen states of a run and the six of a section', () => {
    expect(Object.keys(RUN_STATES.states)).toEqual([
      ...['CREATED', 'CLONED_INPUTS', 'INGESTED', 'FACTS_READY', 'PLAN_READY', 'DRAFTING', 'DRAFT_READY'],
      ...['LINKING', 'VALIDATING', 'FIXING', 'READY_FOR_PR', 'PR_OPENED', 'DONE', 'FAILED', 'CANCELLED'],
    ])
    expect(SECTION_STATES).toEqual([
      ...['NOT_STARTED', 'OUTLINED', 'DRAFTED', 'MERGED_IN_WORKTREE', 'DONE', 'BLOCKED'],
    ])
  })

  test('ND1: exactly the transitions of the table are legal', () => {
    const path =
      'CREATED CLONED_INPUTS INGESTED FACTS_READY PLAN_READY DRAFTING DRAFT_READY LINKING VALIDATING'
    const steps = [...path.split(' '), 'READY_FOR_PR', 'PR_OPENED', 'DONE']
    const legal = new Set(steps.slice(1).map((to, i) => `${steps[i]}→${to}`))
    legal.add('VALIDATING→FIXING').add('FIXING→VALIDATING')
    const states = Object.keys(RUN_STATES.states)
    const ended = ['DONE', 'FAILED', 'CANCELLED']
    for (const from of states.filter(state => !ended.includes(state))) {
      legal.add(`${from}→FAILED`).add(`${from}→CANCELLED`)
    }
    const found = states.flatMap(from =>
      states.filter(to => isLegalTransition(RUN_STATES, from, to)).map(to => `${from}→${to}`),
    )
    expect(new Set(found)).toEqual(legal)
  })

  test('ND1: an illegal transition changes nothing', async () => {
    const { journal, log } = await writeFullLog()
    const { text } = log
    const { state } = journal
    const moves = [
      ['DONE', 'CREATED'],
      ['CREATED', 'CLONED_INPUTS'],
      ['DONE', 'NOWHERE'],
    ]
    for (const [old_state, new_state] of moves) {
      await expect(journal.append('RUN_STATE_CHANGED', { old_state, new_state })).rejects.toMatchObject({
        code: 'ILLEGAL_STATE',
      })
    }
    expect(log.text).toBe(text)
    expect(journal.state).toBe(state)
  })

  test('ND2: transitional states go back, stable ones stay', () => {
    const back = Object.keys(RUN_STATES.states).map(state => [state, stableStateOf(RUN_STATES, state)])
    const rewinds = Object.fromEntries(back.filter(([state, to]) => state !== to))
    const draft = 'DRAFT_READY'
    expect(rewinds).toEqual({ DRAFTING: 'PLAN_READY', LINKING: draft, VALIDATING: draft, FIXING: draft })
  })

  test('ND1: a model in which a run could get stuck is refused, and says why', () => {
    const good: StateModel = {
      initial: 'A',
      done: 'Z',
      failed: 'F',
      cancelled: 'C',
      states: {
        A: { kind: 'stable', next: ['B'] },
        B: { kind: 'transitional', next: ['Z'], rewindTo: 'A' },
        Z: { kind: 'terminal' },
        F: { kind: 'terminal' },
        C: { kind: 'terminal' },
      },
    }
    checkStates(good)
    const { states } = good
    const without: unknown = { kind: 'transitional', next: ['Z'] }
    const bad: [Partial<StateModel>, string][] = [
      [{ states: { ...states, X: { kind: 'stable', next: ['Z'] } } }, "can't be reached"],
      [{ states: { ...states, B: without as StateModel['states'][string] } }, 'no way back'],
      [{ states: { ...states, B: { kind: 'transitional', next: ['Z'], rewindTo: 'B' } } }, 'no stable state'],
      [{ states: { ...states, B: { kind: 'stable', next: ['A'] } } }, 'never leads to Z'],
      [{ states: { ...states, A: { kind: 'stable', next: ['B', 'Q'] } } }, 'which is no state'],
      [{ initial: 'Q' }, 'none of the states'],
      [{ done: 'A' }, 'must be terminal'],
      [{ done: 'F' }, 'more than one way'],
    ]
    for (const [change, message] of bad) {
      const failure = failureOf(() => checkStates({ ...good, ...change }))
      expect(failure.code).toBe('INVALID_ARGUMENT')
      expect(failure.message).toContain(message)
    }
  })
})

describe('the chain', () => {
  test('ND3: hashes are those of the vectors', () => {
    const first = eventHash({
      event_id: 'evt-0001',
      ts: '2026-01-28T00:00:00Z',
      type: 'RUN_CREATED',
      payload: { run_id: 'run-1', run_config: {} },
      prev_hash: '',
    })
    expect(first).toBe('3ef7687e07548de1ef529c63b9913455cd328b45524b28c8a0a410b8f585d3ad')
    const second = eventHash({
      event_id: 'evt-0002',
      ts: '2026-01-28T00:00:01Z',
      type: 'RUN_STATE_CHANGED',
      payload: { old_state: 'CREATED', new_state: 'CLONED_INPUTS' },
      prev_hash: first,
    })
    expect(second).toBe('e95e33b266c075ea750bddd99a74877a02fee08d08850be0ff22309a13b5c097')
  })

  test('N2: every line is the canonical form of its event and one LF', async () => {
    const { log } = await writeFullLog()
    for (const line of log.text.split('\n').filter(Boolean))
      expect(line).toBe(canonicalJson(JSON.parse(line)))
    const spaced = log.text.replace('{"event_hash"', '{ "event_hash"')
    expect(failureOf(() => verifyLog(Buffer.from(spaced), 'run-1'))).toMatchObject({
      code: 'EVENT_CHAIN_BROKEN',
      details: { line: 1 },
    })
  })

  test('N3: events have the ten fields and no others, and time never goes back', async () => {
    let now = 5_000
    const { journal, events } = newJournal({ clock: () => (now -= 1_000) })
    const created = { run_id: 'run-1', launch: 'x', launch_version: '1', run_config: {} }
    await journal.append('RUN_CREATED', created)
    await journal.append('RUN_PAUSED', {}, { spanId: journal.newHex(8), parentSpanId: journal.rootSpanId })
    expect(Object.keys(events[1]).sort()).toEqual(
      [
        'event_hash',
        'event_id',
        'parent_span_id',
        'payload',
        'prev_hash',
        'run_id',
        'span_id',
        'trace_id',
      ].concat(['ts', 'type']),
    )
    expect(events[0].ts).toBe(events[1].ts)
    expect(events[0].trace_id).toBe(events[1].trace_id)
    await expect(
      journal.append('ISSUE_RESOLVED', { issue_id: 'x', more: 1 } as { issue_id: string }),
    ).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })

  test('N4: every type of event has a payload of its own in the contract', async () => {
    const { events } = await writeFullLog()
    const seen = new Set([...events.map(({ type }) => type), ...TYPES_SEEN_IN_RESTARTS])
    expect([...seen].sort()).toEqual(Object.keys(CONTRACTS['event-payloads'].$defs ?? {}).sort())
    expect(seen.size).toBe(14 + 3 + 8)
  })

  test('ND5: the events that the seed has no word for are there', () => {
    const added = ['WORK_ITEM_FAILED', 'WORK_ITEM_SKIPPED', 'SECTION_STATE_CHANGED', 'RUN_CANCELLED']
    const types = Object.keys(CONTRACTS['event-payloads'].$defs ?? {})
    expect(types).toEqual(
      expect.arrayContaining([...added, 'RUN_PAUSED', 'RUN_RESUMED', 'RESUME_REWIND', 'RUN_RESTARTED']),
    )
  })

  test('ND3: any changed byte is found, and said to be in its line or sealed with it', async () => {
    const { log, snapshots } = await writeFullLog()
    const bytes = Buffer.from(log.text)
    const last = snapshots.at(-1)!
    const found = { kind: 'read', snapshot: last, text: snapshotText(last) } as const
    let line = 1
    let sealedOnly = 0
    for (let at = 0; at < bytes.length; at++) {
      if (bytes[at] === 0x0a) line++
      // Every fourth byte, and all line ends: a tenth of a millisecond a line adds up.
      if (at % 4 !== 0 && bytes[at] !== 0x0a) continue
      const changed = Buffer.from(bytes)
      changed[at] ^= 1 << (at % 8)
      const failure = failureOf(() => replayBytes(changed, 'run-1', RUN_STATES, found))
      expect(failure.code).toBe('EVENT_CHAIN_BROKEN')
      if (failure.details['fromLine'] === 1) {
        // Spans are not in the formula: only the seal notices.
        sealedOnly++
        expect(failure.details['line']).toBe(last.log.events)
      } else {
        // A line that was joined with the next is broken as that line; one cut in two, where it was cut.
        expect(failure.details['line']).toBe(bytes[at] === 0x0a ? line - 1 : line)
      }
    }
    expect(sealedOnly).toBeLessThan(bytes.length * 0.05)
  }, 120_000)

  test('ND3: a line that was removed, swapped or comes from another run is found', async () => {
    const { log, snapshots } = await writeFullLog()
    const last = snapshots.at(-1)!
    const found = { kind: 'read', snapshot: last, text: snapshotText(last) } as const
    const lines = log.text.split('\n').filter(Boolean)
    const foreign = newJournal({ runId: 'run-2' })
    await foreign.journal.append('RUN_CREATED', {
      run_id: 'run-2',
      launch: 'x',
      launch_version: '1',
      run_config: {},
    })
    const check = (changed: readonly string[], line: number): void => {
      const text = changed.map(each => `${each}\n`).join('')
      const failure = failureOf(() => replayBytes(Buffer.from(text), 'run-1', RUN_STATES, found))
      expect(failure).toMatchObject({ code: 'EVENT_CHAIN_BROKEN', details: { line } })
    }
    for (const at of lines.keys()) {
      // Without its last line the log is a good one that has lost its end.
      check(lines.toSpliced(at, 1), at === lines.length - 1 ? lines.length : at + 1)
      check(lines.toSpliced(at, 0, foreign.log.text.trimEnd()), at + 1)
      if (at > 0) check(lines.with(at, lines[at - 1]).with(at - 1, lines[at]), at)
    }
  })

  test('ND3: a first line with a prev_hash, and lines without a hash, break the chain', async () => {
    const { log } = await writeFullLog()
    const lines = log.text.split('\n').filter(Boolean)
    const check = (text: string, line: number): void => {
      expect(failureOf(() => verifyLog(Buffer.from(text), 'run-1'))).toMatchObject({
        code: 'EVENT_CHAIN_BROKEN',
        details: { line },
      })
    }
    check(`${lines.slice(1).join('\n')}\n`, 1)
    const { prev_hash: _, event_hash: __, ...unhashed } = JSON.parse(lines[1]) as Record<string, unknown>
    check(`${lines[0]}\n${canonicalJson(unhashed)}\n`, 2)
  })

  test('N7: a log of a later version is refused by name, a nonsensical one as broken', async () => {
    const { log } = await writeFullLog()
    const newer = rewritten(log.text, 4, event => ({ ...event, type: 'RUN_TELEPORTED' }))
    expect(failureOf(() => verifyLog(Buffer.from(newer), 'run-1'))).toMatchObject({ code: 'FORMAT_TOO_NEW' })
    const more = rewritten(log.text, 4, event => ({ ...event, colour: 'red' }))
    expect(failureOf(() => verifyLog(Buffer.from(more), 'run-1'))).toMatchObject({
      code: 'FORMAT_TOO_NEW',
      details: { line: 4 },
    })
    const late = rewritten(log.text, 4, event => ({ ...event, ts: '2025-02-30T00:00:00Z' }))
    expect(failureOf(() => verifyLog(Buffer.from(late), 'run-1'))).toMatchObject({
      code: 'EVENT_CHAIN_BROKEN',
      details: { line: 4 },
    })
    const jump = rewritten(log.text, 4, event => ({
      ...event,
      payload: { old_state: 'CLONED_INPUTS', new_state: 'DONE' },
    }))
    expect(failureOf(() => replayBytes(Buffer.from(jump), 'run-1', RUN_STATES, MISSING))).toMatchObject({
      code: 'EVENT_CHAIN_BROKEN',
      details: { line: 4 },
    })
  })
})

describe('snapshots', () => {
  test('N7: replayed up to the event of a live snapshot, the log gives it byte for byte', async () => {
    const { log, snapshots } = await writeFullLog()
    expect(snapshots.length).toBeGreaterThan(15)
    for (const live of snapshots) {
      const replayed = replayBytes(Buffer.from(log.text), 'run-1', RUN_STATES, MISSING, live.log.events)
      expect(snapshotText(snapshotAt(replayed))).toBe(snapshotText(live))
    }
  })

  test('N5: there is a snapshot after every change of state and after the last event', async () => {
    const { events, snapshots } = await writeFullLog()
    const covered = new Set(snapshots.map(({ log }) => log.events))
    for (const [index, { type }] of events.entries()) {
      if (type === 'RUN_STATE_CHANGED' || type === 'RESUME_REWIND') expect(covered.has(index + 1)).toBe(true)
    }
    expect(covered.has(events.length)).toBe(true)
  })

  test('N6: a snapshot has its fields, and is as its contract says', async () => {
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

  test('N6: a log that lost its end is noticed by the snapshot', async () => {
    const { log, snapshots } = await writeFullLog()
    const last = snapshots.at(-1)!
    const found = { kind: 'read', snapshot: last, text: snapshotText(last) } as const
    const shorter = log.text.slice(0, log.text.lastIndexOf('\n', log.text.length - 2) + 1)
    replayBytes(Buffer.from(shorter), 'run-1', RUN_STATES, MISSING)
    expect(failureOf(() => replayBytes(Buffer.from(shorter), 'run-1', RUN_STATES, found))).toMatchObject({
      code: 'EVENT_CHAIN_BROKEN',
    })
  })

  test('N8: a snapshot that is damaged is told apart from one that is good', async () => {
    const { log, snapshots } = await writeFullLog()
    const folder = newFolder()
    writeSnapshot(folder, snapshots.at(-1)!)
    const good = replayBytes(Buffer.from(log.text), 'run-1', RUN_STATES, readSnapshot(folder, 'run-1'))
    expect(good.snapshotProblem).toBeUndefined()
    const path = join(folder, 'snapshot.json')
    const text = readFileSync(path, 'utf8')
    for (const bad of [text.slice(1), text.replace('"DONE"', '"LINKING"'), 'null', '[]', '{}', '']) {
      writeFileSync(path, bad)
      const replayed = replayBytes(Buffer.from(log.text), 'run-1', RUN_STATES, readSnapshot(folder, 'run-1'))
      expect(replayed.snapshotProblem).toBeDefined()
      expect(snapshotText(snapshotAt(replayed))).toBe(text)
    }
    writeFileSync(path, text.replaceAll('run-1', 'run-2'))
    expect(failureOf(() => readSnapshot(folder, 'run-1'))).toMatchObject({ code: 'CORRUPT' })
    writeFileSync(path, text.replace('"schema_version":1', '"schema_version":2'))
    expect(failureOf(() => readSnapshot(folder, 'run-1'))).toMatchObject({ code: 'FORMAT_TOO_NEW' })
    expect(readdirSync(folder)).toEqual(['snapshot.json'])
  })

  test('ND6: the words of others are read as ours', async () => {
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
    expect(inOurWords(foreign)).toEqual(snapshots.at(-1))
    expect(inOurWords({ work_items: [{ status: 'IN_PROGRESS' }] })).toEqual({
      work_items: [{ status: 'running' }],
    })
  })

  test('ND6: a failed item, an artifact and a resolved issue are as they must be on disk', async () => {
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

describe('durability', () => {
  test('N2: an event counts once it is durable, N5 its snapshot comes after it', async () => {
    const { journal, log, snapshots } = newJournal()
    const story: string[] = []
    const synced = gateway()
    log.append = async line => {
      story.push(`written ${(JSON.parse(line) as { type: string }).type}`)
      await synced.passed
      story.push('durable')
    }
    const created = { run_id: 'run-1', launch: 'x', launch_version: '1', run_config: {} }
    const appended = journal
      .append('RUN_CREATED', created)
      .then(() => story.push(`${snapshots.length} snapshot`))
    await new Promise(setImmediate)
    expect(story).toEqual(['written RUN_CREATED'])
    expect(snapshots).toEqual([])
    synced.open()
    await appended
    expect(story).toEqual(['written RUN_CREATED', 'durable', '1 snapshot'])
  })

  test('N2: after a write that failed nothing more is written, and everybody hears of it', async () => {
    const { journal, log, snapshots } = newJournal()
    const created = { run_id: 'run-1', launch: 'x', launch_version: '1', run_config: {} }
    await journal.append('RUN_CREATED', created)
    const full = new AnnalsError('DISK_FULL', 'no room')
    log.append = () => Promise.reject(full)
    const both = [journal.append('RUN_PAUSED', {}), journal.append('ISSUE_RESOLVED', { issue_id: 'x' })]
    const outcomes = await Promise.allSettled(both)
    expect(outcomes[0]).toMatchObject({ status: 'rejected', reason: full })
    await expect(journal.append('RUN_PAUSED', {})).rejects.toBe(full)
    expect(journal.failure).toBe(full)
    expect(snapshots).toHaveLength(1)
  })
})

describe('contracts', () => {
  test.each(Object.entries(CONTRACTS))(
    'N3 docs/contracts/%s.schema.json is what the code checks with',
    (name, schema) => {
      const file = new URL(`${name}.schema.json`, CONTRACT_FILES)
      const text = `${JSON.stringify(schema, undefined, 2)}\n`
      // `ANNALS_UPDATE=1 npx vitest run test/launch/log.test.ts` writes them.
      if (process.env['ANNALS_UPDATE'] === '1') writeFileSync(file, text)
      expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(JSON.parse(text))
    },
  )
})

describe('where lines are kept', () => {
  test('ND4: a torn last line is cut off and kept beside the log', async () => {
    const { log } = await writeFullLog()
    const folder = newFolder()
    const path = join(folder, 'events.ndjson')
    for (const tear of [1, 40]) {
      writeFileSync(path, `${log.text}${log.text.slice(0, tear)}`)
      const file = await FileLog.open(folder)
      const replayed = replayBytes(await file.read(), 'run-1', RUN_STATES, MISSING)
      expect(replayed.tornBytes).toBe(tear)
      await file.cut(replayed.seal.bytes)
      await file.append('next\n')
      await file.close()
      expect(readFileSync(path, 'utf8')).toBe(`${log.text}next\n`)
    }
    expect(readFileSync(join(folder, 'events.ndjson.torn'), 'utf8')).toBe(
      log.text.slice(0, 1) + log.text.slice(0, 40),
    )
  })

  test('N2: lines appended at once are there in order, and the database exports the bytes of the file', async () => {
    const { events } = await writeFullLog()
    const folder = newFolder()
    const file = await FileLog.open(folder)
    await Promise.all(events.map(event => file.append(lineOf(event))))
    await file.close()
    const db = await open({ memory: true })
    const database = new DatabaseLog(db.events, 'run-1')
    await Promise.all(events.map(event => database.append(lineOf(event))))
    const text = events.map(lineOf).join('')
    expect(readFileSync(join(folder, 'events.ndjson'), 'utf8')).toBe(text)
    expect((await database.read()).toString()).toBe(text)
    expect((await db.events.verifyChain('run-1')).isValid).toBe(true)
    await database.close()
    await db.close()
  })
})
