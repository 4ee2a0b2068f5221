import { expect } from 'vitest'
import { type Annals, namespace, type Value } from '../../index.ts'
import { contentsOf, RUN, refused, runsOf, type Suite } from './suite.ts'

interface Limited {
  readonly bytesMax: number
  /** Every call that takes such a name. The call that creates its object is the first. */
  readonly calls: readonly ((db: Annals, name: string) => Promise<unknown>)[]
}

const THOUGHT = { type: 'Thought', content: '' } as const
const MACHINE = { initial: 'a', transitions: [] }

const LIMITED: Readonly<Record<string, Limited>> = {
  'a key': {
    bytesMax: 1_024,
    calls: [
      (db, key) => db.kv.put(RUN, key, 1),
      (db, key) => db.kv.get(RUN, key),
      (db, key) => db.kv.getVersioned(RUN, key),
      (db, key) => db.kv.exists(RUN, key),
      (db, key) => db.kv.list(RUN, { after: key }),
      (db, key) => db.kv.delete(RUN, key),
      (db, key) => db.transaction(RUN, tx => tx.kv.put(key, 1)),
    ],
  },
  'the name of a cell': {
    bytesMax: 1_024,
    calls: [
      (db, name) => db.cells.init(RUN, name, 1),
      (db, name) => db.cells.cas(RUN, name, 1, 2),
      (db, name) => db.cells.set(RUN, name, 1),
      (db, name) => db.cells.transition(RUN, name, () => ({ value: 1, result: 1 })),
      (db, name) => db.cells.transitionOrInit(RUN, name, 1, () => ({ value: 1, result: 1 })),
      (db, name) => db.cells.read(RUN, name),
      (db, name) => db.cells.exists(RUN, name),
      (db, name) => db.cells.delete(RUN, name),
    ],
  },
  'the name of a machine': {
    bytesMax: 1_024,
    calls: [
      (db, name) => db.machines.define(RUN, name, MACHINE),
      (db, name) => db.machines.current(RUN, name),
      (db, name) => db.machines.isTerminal(RUN, name),
      (db, name) => db.machines.can(RUN, name, 'e'),
      (db, name) => db.machines.definition(RUN, name),
      (db, name) => db.machines.definition(RUN, name, 1),
      (db, name) => db.machines.toMermaid(RUN, name),
    ],
  },
  'the id of a trace': {
    bytesMax: 1_024,
    calls: [
      (db, id) => db.traces.record(RUN, THOUGHT, { id }),
      (db, parentId) => db.traces.record(RUN, THOUGHT, { parentId }),
      (db, parentId) => db.traces.recordChild(RUN, parentId, THOUGHT),
      (db, id) => db.traces.get(RUN, id),
      (db, id) => db.traces.children(RUN, id),
      (db, id) => db.traces.tree(RUN, id),
    ],
  },
  'the id of a run': {
    bytesMax: 256,
    calls: [
      (db, runId) => db.runs.create({ runId }),
      (db, parentRun) => db.runs.create({ parentRun }),
      (db, runId) => db.runs.get(runId),
      (db, runId) => db.runs.children(runId),
      (db, runId) => db.runs.addTags(runId, []),
      (db, run) => db.kv.put(run, 'k', 1),
      (db, run) => db.events.append(run, 'n', 1),
      (db, run) => db.events.length(run),
      (db, run) => db.transaction(run, () => 1),
      (db, runId) => db.runs.delete(runId),
    ],
  },
  'a part of a namespace': {
    bytesMax: 256,
    calls: [
      async (db, app) => db.kv.put(namespace({ tenant: db.tenant, app, agent: 'a', run: 'r' }), 'k', 1),
      async (db, agent) => db.kv.put(namespace({ tenant: db.tenant, app: 'a', agent, run: 'r' }), 'k', 1),
      async (db, run) => db.kv.put(namespace({ tenant: db.tenant, app: 'a', agent: 'a', run }), 'k', 1),
      async (db, tenant) => db.forTenant(tenant).kv.put(RUN, 'k', 1),
    ],
  },
  'a tag': {
    bytesMax: 256,
    calls: [
      (db, tag) => db.traces.record(RUN, THOUGHT, { tags: ['a', tag] }),
      (db, tag) => db.runs.create({ tags: [tag] }),
      (db, tag) => db.runs.addTags('known', [tag]),
      (db, tag) => db.traces.queryByTag(RUN, tag),
      (db, tag) => db.runs.query({ tags: [tag] }),
    ],
  },
  'the type of an event': {
    bytesMax: 256,
    calls: [
      (db, type) => db.events.append(RUN, type, 1),
      (db, type) => db.events.appendBatch(RUN, [{ type, payload: 1 }]),
      (db, type) => db.events.readByType(RUN, type),
      (db, type) => db.transaction(RUN, tx => tx.events.append(type, 1)),
    ],
  },
}

const VALUE_BYTES_MAX = 16 * 1024 * 1024

/** P17: limits, at the boundary and one byte past it. */
export function testLimits(suite: Suite): void {
  for (const [name, { bytesMax, calls }] of Object.entries(LIMITED)) {
    suite.holds(`P17: ${name} of 1 and of ${bytesMax} bytes is accepted`, async db => {
      await db.runs.create({ runId: 'known' })
      for (const text of [
        'k',
        'k'.repeat(bytesMax),
        '🙂'.repeat(bytesMax / 4),
        `${'é'.repeat(bytesMax / 2 - 1)}ab`,
      ]) {
        expect(Buffer.byteLength(text)).toSatisfy((bytes: number) => bytes === 1 || bytes === bytesMax)
        for (const call of calls) await call(db, text)
      }
    })

    suite.holds(
      `P17: ${name} that is empty, too long, malformed or contains U+0000 is refused, and changes nothing`,
      async db => {
        await db.runs.create({ runId: 'known' })
        const before = [await contentsOf(db, RUN), await runsOf(db)]
        const texts = [
          '',
          'k'.repeat(bytesMax + 1),
          `${'k'.repeat(bytesMax - 1)}é`,
          '🙂'.repeat(bytesMax / 4 + 1),
          'a\0b',
          '\0',
          '\ud800',
          'a\udc00b',
          'k'.repeat(1_000_000),
        ]
        for (const text of texts) {
          const what = JSON.stringify(text.slice(0, 20))
          for (const [i, call] of calls.entries()) {
            await refused(
              attempt(() => call(db, text)),
              'INVALID_ARGUMENT',
              `call ${i}, ${what}`,
            )
          }
        }
        for (const [i, call] of calls.entries()) {
          // Some of these arguments are optional, but null is not a name.
          await refused(
            attempt(() => call(db, null as unknown as string)),
            'INVALID_ARGUMENT',
            `call ${i}, null`,
          )
          await refused(
            attempt(() => call(db, 7 as unknown as string)),
            'INVALID_ARGUMENT',
            `call ${i}, 7`,
          )
        }
        expect([await contentsOf(db, RUN), await runsOf(db)]).toEqual(before)
      },
    )
  }

  suite.holds(
    'P17: a record that is too large as a whole is refused with its limit and its fields',
    async db => {
      const large = 'v'.repeat(9 * 1024 * 1024)
      const limit = String(17 * 1024 * 1024)
      const call = { type: 'ToolCall', toolName: 'x', arguments: large, result: large } as const
      const { message } = await refused(db.traces.record(RUN, call), 'INVALID_ARGUMENT')
      for (const said of [limit, 'arguments', 'result']) expect(message).toContain(said)
      await db.runs.create({ runId: RUN, metadata: large + large.slice(2_500_000) })
      const failed = await refused(db.runs.fail(RUN, large.slice(7_000_000)), 'INVALID_ARGUMENT')
      for (const said of [limit, 'metadata', 'error']) expect(failed.message).toContain(said)
      expect(await db.runs.get(RUN)).toMatchObject({ status: 'Active' })
      expect(await db.traces.count(RUN)).toBe(0)
    },
  )

  suite.holds(
    'P17: a value whose encoding has 16 MiB is accepted, and one byte more is refused',
    async db => {
      // The encoding adds two quotes.
      const largest = 'v'.repeat(VALUE_BYTES_MAX - 2)
      const ways: readonly ((value: Value) => Promise<unknown>)[] = [
        value => db.kv.put(RUN, 'k', value),
        value => db.events.append(RUN, 'n', value),
        value => db.cells.set(RUN, 'c', value),
        value => db.traces.record(RUN, { type: 'Custom', traceType: 'x', data: value }, { id: 't' }),
      ]
      for (const way of ways) {
        await refused(way(`${largest}v`), 'INVALID_ARGUMENT')
        await refused(way([largest]), 'INVALID_ARGUMENT', 'the brackets count')
      }
      const bytes = new Uint8Array(VALUE_BYTES_MAX)
      await refused(db.events.append(RUN, 'n', bytes), 'INVALID_ARGUMENT', 'bytes in base64')
      expect(await contentsOf(db, RUN)).toEqual({ kv: [], events: [], length: 0, cells: [], traces: [] })
      for (const way of ways) await way(largest)
      expect(await db.kv.get(RUN, 'k')).toBe(largest)
      expect((await db.events.head(RUN))!.payload).toBe(largest)
      expect((await db.cells.read(RUN, 'c'))!.value).toBe(largest)
      expect((await db.traces.get(RUN, 't'))!.trace).toMatchObject({ data: largest })
    },
  )

  suite.holds('P28: 16 MiB of bytes are accepted, and one byte more is refused', async db => {
    const bytes = new Uint8Array(VALUE_BYTES_MAX).fill(200)
    bytes[VALUE_BYTES_MAX - 1] = 0
    const ways: readonly ((value: Value) => Promise<Value | undefined>)[] = [
      async value => {
        await db.kv.put(RUN, 'k', value)
        return db.kv.get(RUN, 'k')
      },
      async value => {
        await db.cells.set(RUN, 'c', value)
        return (await db.cells.read(RUN, 'c'))?.value
      },
      async value => {
        const id = await db.traces.record(RUN, { type: 'Thought', content: '' }, { metadata: value })
        return (await db.traces.get(RUN, id))?.metadata
      },
      async value => (await db.runs.create({ metadata: value })).metadata,
    ]
    for (const way of ways) {
      await refused(way(new Uint8Array(VALUE_BYTES_MAX + 1)), 'INVALID_ARGUMENT')
      await refused(way([bytes, new Uint8Array(1)]), 'INVALID_ARGUMENT', 'all bytes count')
      const found = await way({ name: 'x', bytes })
      expect(Buffer.compare((found as { readonly bytes: Uint8Array }).bytes, bytes)).toBe(0)
    }
    expect(Buffer.compare((await ways[0](bytes)) as Uint8Array, bytes)).toBe(0)
  })
}

/** Turns an error that a call throws synchronously into a rejection. */
async function attempt(call: () => Promise<unknown>): Promise<unknown> {
  return call()
}
