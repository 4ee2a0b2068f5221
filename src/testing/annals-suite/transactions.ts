import { inspect } from 'node:util'
import { expect } from 'vitest'
import type { ScopedTransaction } from '../../index.ts'
import { bad, contentsOf, gather, RUN, refused, type Suite, times } from './suite.ts'

const EMPTY = { kv: [], events: [], length: 0, cells: [], traces: [] }
const MACHINE = { initial: 'a', transitions: [{ from: 'a', event: 'go', to: 'b' }] }

/** The writes of every primitive. */
const WRITES: Readonly<Record<string, (tx: ScopedTransaction) => Promise<unknown>>> = {
  'kv.put': tx => tx.kv.put('k', 1),
  'kv.delete': tx => tx.kv.delete('k'),
  'events.append': tx => tx.events.append('n', 1),
  'events.appendBatch': tx => tx.events.appendBatch([{ type: 'n', payload: 1 }]),
  'cells.init': tx => tx.cells.init('c', 1),
  'cells.set': tx => tx.cells.set('c', 1),
  'cells.delete': tx => tx.cells.delete('c'),
  'cells.transitionOrInit': tx => tx.cells.transitionOrInit('c', 0, () => ({ value: 1, result: 1 })),
  'machines.define': tx => tx.machines.define('m', MACHINE),
  'traces.record': tx => tx.traces.record({ type: 'Thought', content: '' }),
  'events.appendBatch of nothing': tx => tx.events.appendBatch([]),
  'events.append with options': tx => tx.events.append('n', 1, { expectedLength: 1, idempotencyKey: 'i' }),
  'kv.put if absent': tx => tx.kv.put('k', 1, { ifAbsent: true }),
  'kv.put if a version': tx => tx.kv.put('other', 1, { ifVersion: 0 }),
  'kv.write': tx => tx.kv.write([{ op: 'put', key: 'k', value: 1 }]),
  'kv.write of nothing': tx => tx.kv.write([]),
  'kv.clear': tx => tx.kv.clear(),
  'kv.clear of an empty range': tx => tx.kv.clear({ gt: 'b', lt: 'a' }),
  'kv.update': tx => tx.kv.update({ keys: ['k'] }, () => ({ deletes: ['k'], result: 1 })),
  'kv.update of nothing': tx => tx.kv.update({}, () => ({ result: 1 })),
  'a write to another scope': tx => tx.run('run-2').kv.put('k', 1),
  'runs.create': tx => tx.runs.create({ runId: 'run-2' }),
  'runs.ensure': tx => tx.runs.ensure('run-2'),
}

const READS: Readonly<Record<string, (tx: ScopedTransaction) => Promise<unknown>>> = {
  'kv.get': tx => tx.kv.get('k'),
  'kv.list': tx => tx.kv.list(),
  'events.read': tx => tx.events.read(0),
  'events.length': tx => tx.events.length(),
  'events.iterate': tx => gather(tx.events.iterate()),
  'events.verifyChain': tx => tx.events.verifyChain(),
  'cells.read': tx => tx.cells.read('c'),
  'cells.list': tx => tx.cells.list(),
  'machines.current': tx => tx.machines.current('m'),
  'traces.get': tx => tx.traces.get('t'),
  'traces.queryByTag': tx => tx.traces.queryByTag('x'),
  'events.iterate of an empty range': tx => gather(tx.events.iterate({ from: 3, to: 3 })),
  'events.readByType': tx => tx.events.readByType('n', { after: 3, limit: 1 }),
  'kv.getMany': tx => tx.kv.getMany(['k']),
  'kv.getMany of nothing': tx => tx.kv.getMany([]),
  'kv.iterate': tx => gather(tx.kv.iterate()),
  'kv.iterate of an empty range': tx => gather(tx.kv.iterate({ gt: 'b', lt: 'a' })),
  'a read of another scope': tx => tx.run('run-2').kv.get('k'),
  'runs.get': tx => tx.runs.get('run-2'),
  'runs.query': tx => tx.runs.query(),
  'runs.stats': tx => tx.runs.stats(),
}

/** P4, P5: transactions are atomic, read their own writes, and end as a whole. */
export function testTransactions(suite: Suite): void {
  suite.holds(
    'P4: a transaction over all primitives is atomic, and returns the result of its function',
    async db => {
      const answer = await db.transaction(RUN, async tx => {
        for (const write of Object.values(WRITES).slice(0, 4)) await write(tx)
        await tx.cells.init('c', 'v')
        await tx.machines.define('m', MACHINE)
        await tx.traces.record({ type: 'Thought', content: '' }, { id: 't' })
        return 'answer'
      })
      expect(answer).toBe('answer')
      expect(await db.kv.list(RUN)).toEqual([])
      expect(await db.events.length(RUN)).toBe(2)
      expect(await db.cells.read(RUN, 'c')).toMatchObject({ value: 'v', version: 1 })
      expect(await db.machines.current(RUN, 'm')).toMatchObject({ state: 'a' })
      expect(await db.traces.list(RUN)).toEqual(['t'])
    },
  )

  suite.holds(
    'P4: a transaction reads its own writes, which no other reader sees before the commit',
    async db => {
      await db.kv.put(RUN, 'a', 1)
      await db.kv.put(RUN, 'c', 1)
      await db.events.append(RUN, 'n', 'before')
      const before = await contentsOf(db, RUN)
      const tx = await db.begin(RUN)
      await tx.kv.put('b', 2)
      await tx.kv.put('a', 3)
      expect(await tx.kv.delete('c')).toBe(true)
      expect(await tx.kv.delete('c')).toBe(false)
      expect(await tx.kv.entries()).toEqual([
        ['a', 3],
        ['b', 2],
      ])
      expect(await tx.kv.list({ limit: 1, after: 'a' })).toEqual(['b'])
      expect(await tx.kv.exists('c')).toBe(false)

      const receipts = await tx.events.appendBatch(times(2, i => ({ type: 'n', payload: i })))
      expect(receipts.map(({ sequence }) => sequence)).toEqual([1, 2])
      expect(await tx.events.length()).toBe(3)
      expect((await tx.events.head())!.hash).toBe(receipts[1].hash)
      expect((await gather(tx.events.iterate())).map(({ payload }) => payload)).toEqual(['before', 0, 1])
      expect((await tx.events.readRange(1, 2)).map(({ payload }) => payload)).toEqual([0])
      expect(await tx.events.readByType('n')).toHaveLength(3)
      expect(await tx.events.verifyChain()).toEqual({ isValid: true, length: 3 })

      expect(await tx.cells.init('c', 1)).toBe(1)
      expect(await tx.cells.cas('c', 1, 2)).toBe(2)
      await refused(tx.cells.init('c', 3), 'CELL_EXISTS')
      expect(await tx.cells.read('c')).toMatchObject({ value: 2, version: 2 })
      expect(await tx.cells.list()).toEqual(['c'])
      expect(await tx.cells.delete('c')).toBe(true)
      expect(await tx.cells.init('c', 4)).toBe(3)

      const root = await tx.traces.record({ type: 'Thought', content: '' }, { tags: ['x'] })
      const child = await tx.traces.recordChild(root, { type: 'Thought', content: '' })
      expect((await tx.traces.queryByTag('x')).map(({ id }) => id)).toEqual([root])
      expect((await tx.traces.tree(root))!.children.map(({ trace }) => trace.id)).toEqual([child])
      expect(await tx.traces.count()).toBe(2)
      await refused(tx.traces.record({ type: 'Thought', content: '' }, { id: root }), 'TRACE_EXISTS')

      expect(await contentsOf(db, RUN)).toEqual(before)
      await tx.commit()
      const { sequence, hash } = receipts[1]
      expect({ sequence, hash }).toEqual({ sequence: 2, hash: (await db.events.read(RUN, 2))!.hash })
      expect(await db.cells.read(RUN, 'c')).toMatchObject({ value: 4, version: 3 })
      expect(await db.traces.children(RUN, root)).toHaveLength(1)
      expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 3 })
      expect(await db.verifyIndices(RUN)).toEqual({ ok: true, problems: [] })
    },
  )

  for (const [name, write] of Object.entries(WRITES)) {
    suite.holds(
      `P5: after an error ${name} and all other writes are undone, and the caller gets the error unchanged`,
      async db => {
        const mine = new Error('mine')
        const attempt = db.transaction(RUN, async tx => {
          await tx.kv.put('other', 1)
          await tx.events.append('other', 1)
          await write(tx)
          throw mine
        })
        await expect(attempt).rejects.toBe(mine)
        expect(await contentsOf(db, RUN)).toEqual(EMPTY)
        expect(await db.kv.list('run-2')).toEqual([])
        expect(await db.runs.list()).toEqual([])
        await refused(db.machines.current(RUN, 'm'), 'MACHINE_NOT_FOUND')
        expect((await db.events.append(RUN, 'n', 1)).sequence).toBe(0)
        expect(await db.cells.init(RUN, 'c', 1)).toBe(1)
      },
    )

    suite.holds(`P4: ${name} in a read-only transaction is INVALID_OPERATION`, async db => {
      await refused(db.transaction(RUN, write, { readOnly: true }), 'INVALID_OPERATION')
      const tx = await db.begin(RUN, { readOnly: true })
      await refused(write(tx), 'INVALID_OPERATION')
      await tx.rollback()
      expect(await contentsOf(db, RUN)).toEqual(EMPTY)
    })
  }

  for (const end of ['commit', 'rollback'] as const) {
    suite.holds(`P4: any use after ${end} is INVALID_OPERATION`, async db => {
      const tx = await db.begin(RUN)
      await tx.kv.put('before', 1)
      await tx[end]()
      const before = await contentsOf(db, RUN)
      for (const [name, use] of [...Object.entries(WRITES), ...Object.entries(READS)]) {
        await refused(use(tx), 'INVALID_OPERATION', name)
      }
      await refused(tx.commit(), 'INVALID_OPERATION', 'commit')
      await refused(tx.rollback(), 'INVALID_OPERATION', 'rollback')
      expect(await contentsOf(db, RUN)).toEqual(before)
    })
  }

  suite.holds('P4: a transaction ends when its function returns', async db => {
    const tx = await db.transaction(RUN, handed => handed)
    for (const [name, use] of [...Object.entries(WRITES), ...Object.entries(READS)]) {
      await refused(use(tx), 'INVALID_OPERATION', name)
    }
    expect(await contentsOf(db, RUN)).toEqual(EMPTY)
  })

  suite.holds(
    'P12: printing the receipt of an append is not a read, and prints the whole receipt after the commit',
    async db => {
      const tx = await db.begin(RUN)
      const receipt = await tx.events.append('n', 1)
      expect(inspect(receipt)).toBe('[an append to be committed]')
      await db.events.append(RUN, 'n', 'of another')
      await tx.commit()
      expect(inspect(receipt)).toBe(inspect({ sequence: 1, hash: (await db.events.read(RUN, 1))!.hash }))
      const { sequence, hash } = receipt
      expect({ ...receipt }).toStrictEqual({ sequence, hash })
    },
  )

  suite.holds('P5: a rollback leaves nothing, and uses no sequence', async db => {
    await db.events.append(RUN, 'n', 0)
    const tx = await db.begin(RUN)
    const { sequence } = await tx.events.append('n', 1)
    expect(sequence).toBe(1)
    await tx.kv.put('k', 1)
    await tx.rollback()
    expect(await db.kv.list(RUN)).toEqual([])
    expect((await db.events.append(RUN, 'n', 2)).sequence).toBe(1)
    expect((await gather(db.events.iterate(RUN))).map(({ payload }) => payload)).toEqual([0, 2])
  })

  suite.holds('P5: await using rolls back a transaction, unless it was committed', async db => {
    {
      await using forgotten = await db.begin(RUN)
      await forgotten.kv.put('forgotten', 1)
    }
    {
      await using kept = await db.begin(RUN)
      await kept.kv.put('kept', 1)
      await kept.commit()
    }
    expect(await db.kv.list(RUN)).toEqual(['kept'])
  })

  suite.holds('a refused operation does not end the transaction, and leaves nothing in it', async db => {
    await db.transaction(RUN, async tx => {
      await refused(tx.kv.put('', 1), 'INVALID_ARGUMENT')
      await refused(tx.events.append('n', bad(undefined)), 'INVALID_ARGUMENT')
      await refused(tx.cells.cas('c', 1, 1), 'CELL_NOT_FOUND')
      await refused(tx.traces.recordChild('t', { type: 'Thought', content: '' }), 'TRACE_NOT_FOUND')
      await tx.kv.put('k', 1)
    })
    expect(await contentsOf(db, RUN)).toEqual({ ...EMPTY, kv: [['k', 1]] })
  })

  suite.holds('concurrent operations of one transaction run one after the other', async db => {
    await db.transaction(RUN, async tx => {
      const count = (): Promise<unknown> =>
        tx.cells.transitionOrInit('c', 0, ({ value }) => ({ value: Number(value) + 1, result: 0 }))
      await Promise.all([...times(50, count), ...times(50, i => tx.events.append('n', i))])
      expect(await tx.cells.read('c')).toMatchObject({ value: 50, version: 50 })
    })
    expect(await db.cells.read(RUN, 'c')).toMatchObject({ value: 50, version: 50 })
    expect((await gather(db.events.iterate(RUN))).map(({ payload }) => payload)).toEqual(times(50, i => i))
  })

  suite.holds('a transaction that takes too long is TIMEOUT, and writes nothing', async db => {
    const attempt = db.transaction(
      RUN,
      async tx => {
        await tx.kv.put('k', 1)
        await new Promise(() => {})
      },
      { timeoutMs: 10 },
    )
    await refused(attempt, 'TIMEOUT')
    const tx = await db.begin(RUN, { timeoutMs: 1 })
    await tx.kv.put('k', 1).catch(() => {})
    // By then the timeout of the transaction has passed.
    await new Promise(resolve => setTimeout(resolve, 10))
    await refused(tx.kv.get('k'), 'TIMEOUT')
    await refused(tx.commit(), 'TIMEOUT')
    expect(await contentsOf(db, RUN)).toEqual(EMPTY)
  })

  suite.holds('aborting the signal rolls the transaction back with the signal’s reason', async db => {
    const stop = new AbortController()
    const mine = new Error('mine')
    const attempt = db.transaction(
      RUN,
      async tx => {
        await tx.kv.put('k', 1)
        stop.abort(mine)
        await new Promise(() => {})
      },
      { signal: stop.signal },
    )
    await expect(attempt).rejects.toBe(mine)
    expect(await contentsOf(db, RUN)).toEqual(EMPTY)
  })

  suite.holds('invalid options are refused, and the function does not run', async db => {
    let runs = 0
    for (const options of [
      null,
      7,
      { retries: 1 },
      { maxRetries: -1 },
      { maxRetries: 1.5 },
      { maxRetries: '1' },
      { timeoutMs: 0 },
      { timeoutMs: -1 },
      { timeoutMs: Number.NaN },
      { timeoutMs: '1' },
      { readOnly: 'yes' },
      { readOnly: 0 },
      { signal: 7 },
      { signal: {} },
    ]) {
      const attempt = db.transaction(RUN, () => runs++, bad(options))
      await refused(attempt, 'INVALID_ARGUMENT', JSON.stringify(options))
    }
    for (const options of [null, { maxRetries: 1 }, { timeoutMs: 0 }, { readOnly: 'yes' }]) {
      await refused(db.begin(RUN, bad(options)), 'INVALID_ARGUMENT', JSON.stringify(options))
    }
    for (const work of [undefined, null, 'work', {}]) {
      await refused(db.transaction(RUN, bad(work)), 'INVALID_ARGUMENT', String(work))
      await refused(db.kv.transaction(RUN, bad(work)), 'INVALID_ARGUMENT', String(work))
    }
    expect(runs).toBe(0)
  })
}
