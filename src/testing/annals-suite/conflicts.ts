import { expect } from 'vitest'
import type { Annals, OpenTransaction } from '../../index.ts'
import { contentsOf, gather, RUN, refused, type Suite, times } from './suite.ts'

interface Case {
  /** The reads of the transaction, before the concurrent write. */
  readonly reads: (tx: OpenTransaction) => Promise<unknown>
  /** The concurrent write, before the transaction commits. */
  readonly meanwhile: (db: Annals) => Promise<unknown>
}

const THOUGHT = { type: 'Thought', content: '' } as const

const CONFLICTS: Readonly<Record<string, Case>> = {
  'a key that was changed': { reads: tx => tx.kv.get('k'), meanwhile: db => db.kv.put(RUN, 'k', 2) },
  'a key that was put again with the same value': {
    reads: tx => tx.kv.get('k'),
    meanwhile: db => db.kv.put(RUN, 'k', 1),
  },
  'a key that was deleted': { reads: tx => tx.kv.exists('k'), meanwhile: db => db.kv.delete(RUN, 'k') },
  'a missing key that was added': {
    reads: tx => tx.kv.get('new'),
    meanwhile: db => db.kv.put(RUN, 'new', 1),
  },
  'a list that got a key': { reads: tx => tx.kv.list(), meanwhile: db => db.kv.put(RUN, 'new', 1) },
  'a list that lost a key': { reads: tx => tx.kv.list(), meanwhile: db => db.kv.delete(RUN, 'k') },
  'the entries of a prefix, one of which was changed': {
    reads: tx => tx.kv.entries({ prefix: 'k' }),
    meanwhile: db => db.kv.put(RUN, 'k', 2),
  },
  'an empty list that got a key': {
    reads: tx => tx.kv.list({ prefix: 'x/' }),
    meanwhile: db => db.kv.put(RUN, 'x/1', 1),
  },
  'a page that got a key': {
    reads: tx => tx.kv.list({ limit: 1 }),
    meanwhile: db => db.kv.put(RUN, 'a', 1),
  },
  'the length of a log that grew': {
    reads: tx => tx.events.length(),
    meanwhile: db => db.events.append(RUN, 'n', 1),
  },
  'the head of a log that grew': {
    reads: tx => tx.events.head(),
    meanwhile: db => db.events.append(RUN, 'n', 1),
  },
  'all events of a log that grew': {
    reads: tx => gather(tx.events.iterate()),
    meanwhile: db => db.events.append(RUN, 'n', 1),
  },
  'a missing event that was appended': {
    reads: tx => tx.events.read(1),
    meanwhile: db => db.events.append(RUN, 'n', 1),
  },
  'the receipt of its own append to a log that grew': {
    reads: async tx => (await tx.events.append('n', 'own')).sequence,
    meanwhile: db => db.events.append(RUN, 'n', 1),
  },
  'a cell that was changed': { reads: tx => tx.cells.read('c'), meanwhile: db => db.cells.set(RUN, 'c', 2) },
  'a cell in its own cas, which was then changed': {
    reads: tx => tx.cells.cas('c', 1, 5),
    meanwhile: db => db.cells.set(RUN, 'c', 2),
  },
  'a missing cell in its own init, which was then added': {
    reads: tx => tx.cells.init('new', 5),
    meanwhile: db => db.cells.init(RUN, 'new', 2),
  },
  'a list of cells that got a cell': {
    reads: tx => tx.cells.list(),
    meanwhile: db => db.cells.set(RUN, 'd', 2),
  },
  'a machine in its own send, which then moved': {
    reads: tx => tx.machines.send('m', 'go'),
    meanwhile: db => db.machines.send(RUN, 'm', 'go'),
  },
  'a missing trace id in its own record, which was then added': {
    reads: tx => tx.traces.record(THOUGHT, { id: 'new' }),
    meanwhile: db => db.traces.record(RUN, THOUGHT, { id: 'new' }),
  },
  'the traces of a tag that got a trace': {
    reads: tx => tx.traces.queryByTag('x'),
    meanwhile: db => db.traces.record(RUN, THOUGHT, { tags: ['x'] }),
  },
  'the children of a trace that got a child': {
    reads: tx => tx.traces.children('t'),
    meanwhile: db => db.traces.recordChild(RUN, 't', THOUGHT),
  },
}

const PEACE: Readonly<Record<string, Case>> = {
  'two appends': {
    reads: tx => tx.events.append('n', 'mine'),
    meanwhile: db => db.events.append(RUN, 'n', 'theirs'),
  },
  'a blind put and a put of the same key': {
    reads: tx => tx.kv.put('k', 'mine'),
    meanwhile: db => db.kv.put(RUN, 'k', 'theirs'),
  },
  'a blind put and a delete': {
    reads: tx => tx.kv.put('k', 'mine'),
    meanwhile: db => db.kv.delete(RUN, 'k'),
  },
  'two deletes of the same key': {
    reads: tx => tx.kv.delete('k'),
    meanwhile: db => db.kv.delete(RUN, 'k'),
  },
  'a delete and a put of the same key': {
    reads: tx => tx.kv.delete('k'),
    meanwhile: db => db.kv.put(RUN, 'k', 'theirs'),
  },
  'a read of a key and a put of another': {
    reads: tx => tx.kv.get('k'),
    meanwhile: db => db.kv.put(RUN, 'l', 1),
  },
  'a list of one prefix and a put under another': {
    reads: tx => tx.kv.list({ prefix: 'k' }),
    meanwhile: db => db.kv.put(RUN, 'l', 1),
  },
  'a read of a page and a put of a key after it': {
    reads: tx => tx.kv.list({ limit: 1 }),
    meanwhile: db => db.kv.put(RUN, 'z', 1),
  },
  'a read of an old event and an append': {
    reads: tx => tx.events.read(0),
    meanwhile: db => db.events.append(RUN, 'n', 1),
  },
  'a read of a range of old events and an append': {
    reads: tx => tx.events.readRange(0, 1),
    meanwhile: db => db.events.append(RUN, 'n', 1),
  },
  'a read of a key and a change of the cell with its name': {
    reads: tx => tx.kv.get('c'),
    meanwhile: db => db.cells.set(RUN, 'c', 9),
  },
  'a read of a key and a put of the same key in another run': {
    reads: tx => tx.kv.get('k'),
    meanwhile: db => db.kv.put('run-2', 'k', 9),
  },
  'a read of the traces of one tag and a record with another': {
    reads: tx => tx.traces.queryByTag('x'),
    meanwhile: db => db.traces.record(RUN, THOUGHT, { tags: ['y'] }),
  },
}

/** P12: the concurrent operations that conflict, and those that do not. */
export function testConflicts(suite: Suite): void {
  suite.holds('P12: a transaction commits despite writers that never pause', async db => {
    await fill(db)
    let busy = true
    const writer = async (write: (n: number) => Promise<unknown>): Promise<void> => {
      for (let n = 0; busy; n++) await write(n)
    }
    const writers = [
      writer(n => db.kv.put(RUN, 'k', n)),
      writer(n => db.events.append(RUN, 'busy', n)),
      writer(() => db.cells.transition(RUN, 'c', ({ value }) => ({ value, result: undefined }))),
    ]
    try {
      for (let round = 0; round < 5; round++) {
        await db.transaction(RUN, async tx => {
          await tx.kv.put('copy', (await tx.kv.get('k')) ?? null)
          await tx.cells.set('seen', await tx.events.length())
          await tx.cells.read('c')
        })
      }
    } finally {
      busy = false
      await Promise.all(writers)
    }
    expect((await db.cells.read(RUN, 'seen'))?.version).toBe(5)
  })

  for (const [name, { reads, meanwhile }] of Object.entries(CONFLICTS)) {
    suite.holds(`P12: a transaction gets CONFLICT, and writes nothing, after it read ${name}`, async db => {
      await fill(db)
      const tx = await db.begin(RUN)
      await reads(tx)
      await tx.kv.put('mine', 1)
      await meanwhile(db)
      const before = await contentsOf(db, RUN)
      await refused(tx.commit(), 'CONFLICT')
      expect(await contentsOf(db, RUN)).toEqual(before)
      await refused(tx.kv.get('k'), 'INVALID_OPERATION')
    })

    suite.holds(
      `P12: a read-only transaction reads the same again, and commits, after it read ${name}`,
      async db => {
        await fill(db)
        const tx = await db.begin(RUN, { readOnly: true })
        const look = async (): Promise<unknown> => [
          await tx.kv.entries(),
          await gather(tx.events.iterate()),
          await tx.cells.list(),
          await tx.traces.list(),
        ]
        const before = await look()
        await meanwhile(db)
        expect(await look()).toEqual(before)
        await tx.commit()
      },
    )
  }

  for (const [name, { reads, meanwhile }] of Object.entries(PEACE)) {
    suite.holds(`P12: no conflict between ${name}`, async db => {
      await fill(db)
      const tx = await db.begin(RUN)
      await reads(tx)
      await tx.kv.put('mine', 1)
      await meanwhile(db)
      await tx.commit()
      expect(await db.kv.get(RUN, 'mine')).toBe(1)
    })
  }

  suite.holds(
    'P12: if two manual transactions read and write the same key, the first to commit wins',
    async db => {
      for (const [first, second] of [
        [0, 1],
        [1, 0],
      ]) {
        await db.kv.put(RUN, 'n', 0)
        const both = [await db.begin(RUN), await db.begin(RUN)]
        for (const [i, tx] of both.entries()) await tx.kv.put('n', Number(await tx.kv.get('n')) + 10 ** i)
        await both[first].commit()
        await refused(both[second].commit(), 'CONFLICT')
        expect(await db.kv.get(RUN, 'n')).toBe(10 ** first)
      }
    },
  )

  suite.holds('P12: two transactions that each read what the other writes do not both commit', async db => {
    await db.kv.put(RUN, 'a', 1)
    await db.kv.put(RUN, 'b', 1)
    const [one, two] = [await db.begin(RUN), await db.begin(RUN)]
    for (const tx of [one, two]) expect((await tx.kv.entries()).length).toBe(2)
    await one.kv.put('a', 0)
    await two.kv.put('b', 0)
    await one.commit()
    await refused(two.commit(), 'CONFLICT')
  })

  suite.holds(
    'P12: interleaved appends of two manual transactions all commit, at the sequences of their receipts',
    async db => {
      const [one, two] = [await db.begin(RUN), await db.begin(RUN)]
      const receipts = [
        await one.events.append('n', 'one-0'),
        await two.events.append('n', 'two-0'),
        await one.events.append('n', 'one-1'),
        await two.events.append('n', 'two-1'),
      ]
      await two.commit()
      await db.events.append(RUN, 'n', 'between')
      await one.commit()
      const events = await gather(db.events.iterate(RUN))
      expect(events.map(({ payload }) => payload)).toEqual(['two-0', 'two-1', 'between', 'one-0', 'one-1'])
      expect(receipts.map(({ sequence }) => sequence)).toEqual([3, 0, 4, 1])
      for (const { sequence, hash } of receipts) expect(events[sequence].hash).toBe(hash)
      expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 5 })
    },
  )

  suite.holds('P12: a transaction in conflict runs again on the new state', async db => {
    await db.kv.put(RUN, 'n', 0)
    const seen: unknown[] = []
    await db.transaction(RUN, async tx => {
      seen.push(await tx.kv.get('n'))
      if (seen.length < 3) await db.kv.put(RUN, 'n', seen.length)
      await tx.kv.put('n', 'mine')
    })
    expect(seen).toEqual([0, 1, 2])
    expect(await db.kv.get(RUN, 'n')).toBe('mine')
  })

  for (const maxRetries of [0, 1, 3]) {
    suite.holds(
      `P12: after ${maxRetries} retries a transaction in conflict gets CONFLICT, and writes nothing`,
      async db => {
        let attempts = 0
        const attempt = db.transaction(
          RUN,
          async tx => {
            await tx.kv.get('n')
            await db.kv.put(RUN, 'n', ++attempts)
            await tx.kv.put('mine', attempts)
            await tx.events.append('n', attempts)
          },
          { maxRetries },
        )
        const { details } = await refused(attempt, 'CONFLICT')
        expect(details['attempts']).toBe(maxRetries + 1)
        expect(attempts).toBe(maxRetries + 1)
        expect(await db.kv.entries(RUN)).toEqual([['n', attempts]])
        expect(await db.events.length(RUN)).toBe(0)
      },
    )
  }

  suite.holds('P12: a read-only transaction runs once, whatever is written meanwhile', async db => {
    let runs = 0
    const seen = await db.transaction(
      RUN,
      async tx => {
        runs++
        const first = await tx.kv.get('n')
        await Promise.all(times(10, i => db.kv.put(RUN, 'n', i)))
        return [first, await tx.kv.get('n')]
      },
      { readOnly: true, maxRetries: 0 },
    )
    expect(seen).toEqual([undefined, undefined])
    expect(runs).toBe(1)
  })
}

async function fill(db: Annals): Promise<void> {
  await db.transaction(RUN, async tx => {
    await tx.kv.put('k', 1)
    await tx.events.append('n', 0)
    await tx.cells.init('c', 1)
    await tx.machines.define('m', { initial: 'a', transitions: [{ from: 'a', event: 'go', to: 'b' }] })
    await tx.traces.record(THOUGHT, { id: 't' })
  })
}
