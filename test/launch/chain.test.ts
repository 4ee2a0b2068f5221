import { describe, expect, test } from 'vitest'
import { canonicalJson } from '../../src/core/canonical-json.ts'
import { eventHash, verifyLog } from '../../src/launch/chain.ts'
import { CONTRACTS } from '../../src/launch/contracts.ts'
import { DOCS_STATES } from '../../src/launch/docs/pipeline.ts'
import { replayBytes } from '../../src/launch/replay.ts'
import { snapshotText } from '../../src/launch/snapshot.ts'
import { failureOf } from './failure-of.ts'
import { newJournal, rewritten, TYPES_SEEN_IN_RESTARTS, writeFullLog } from './written-log.ts'

const MISSING = { kind: 'missing' } as const

describe('the chain', () => {
  test('ND3: hashes match the test vectors', () => {
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

  test('N3: events have exactly the ten fields, and ts never goes back', async () => {
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

  test('N4: every event type has a payload schema', async () => {
    const { events } = await writeFullLog()
    const seen = new Set([...events.map(({ type }) => type), ...TYPES_SEEN_IN_RESTARTS])
    expect([...seen].sort()).toEqual(Object.keys(CONTRACTS['event-payloads'].$defs ?? {}).sort())
    expect(seen.size).toBe(14 + 3 + 8)
  })

  test('ND5: the added event types exist', () => {
    const added = ['WORK_ITEM_FAILED', 'WORK_ITEM_SKIPPED', 'SECTION_STATE_CHANGED', 'RUN_CANCELLED']
    const types = Object.keys(CONTRACTS['event-payloads'].$defs ?? {})
    expect(types).toEqual(
      expect.arrayContaining([...added, 'RUN_PAUSED', 'RUN_RESUMED', 'RESUME_REWIND', 'RUN_RESTARTED']),
    )
  })

  test('ND3: any changed byte is found, by its line or by the seal', async () => {
    const { log, snapshots } = await writeFullLog()
    const bytes = Buffer.from(log.text)
    const last = snapshots.at(-1)!
    const found = { kind: 'read', snapshot: last, text: snapshotText(last) } as const
    let line = 1
    let sealedOnly = 0
    for (let at = 0; at < bytes.length; at++) {
      if (bytes[at] === 0x0a) line++
      // Only every fourth byte and all line ends, to keep the test fast.
      if (at % 4 !== 0 && bytes[at] !== 0x0a) continue
      const changed = Buffer.from(bytes)
      changed[at] ^= 1 << (at % 8)
      const failure = failureOf(() => replayBytes(changed, 'run-1', DOCS_STATES, found))
      expect(failure.code).toBe('EVENT_CHAIN_BROKEN')
      if (failure.details['fromLine'] === 1) {
        // The hashes do not cover spans. Only the seal does.
        sealedOnly++
        expect(failure.details['line']).toBe(last.log.events)
      } else {
        // Two joined lines are reported as the second one, a split line as its first part.
        expect(failure.details['line']).toBe(bytes[at] === 0x0a ? line - 1 : line)
      }
    }
    expect(sealedOnly).toBeLessThan(bytes.length * 0.05)
  }, 120_000)

  test('ND3: a line that was removed, swapped or taken from another run is found', async () => {
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
      const failure = failureOf(() => replayBytes(Buffer.from(text), 'run-1', DOCS_STATES, found))
      expect(failure).toMatchObject({ code: 'EVENT_CHAIN_BROKEN', details: { line } })
    }
    for (const at of lines.keys()) {
      // Without its last line the log is valid, but it has lost its end.
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

  test('N7: a log of a later version is FORMAT_TOO_NEW, an invalid one is EVENT_CHAIN_BROKEN', async () => {
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
    expect(failureOf(() => replayBytes(Buffer.from(jump), 'run-1', DOCS_STATES, MISSING))).toMatchObject({
      code: 'EVENT_CHAIN_BROKEN',
      details: { line: 4 },
    })
  })
})
