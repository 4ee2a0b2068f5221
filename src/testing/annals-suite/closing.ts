import { expect } from 'vitest'
import type { Annals } from '../../index.ts'
import { contentsOf, gather, RUN, refused, type Suite, times } from './suite.ts'

const CALLS: Readonly<Record<string, (db: Annals) => Promise<unknown>>> = {
  'kv.get': db => db.kv.get(RUN, 'k'),
  'kv.put': db => db.kv.put(RUN, 'k', 1),
  'kv.delete': db => db.kv.delete(RUN, 'k'),
  'kv.list': db => db.kv.list(RUN),
  'events.append': db => db.events.append(RUN, 'n', 1),
  'events.appendBatch': db => db.events.appendBatch(RUN, [{ type: 'n', payload: 1 }]),
  'events.appendBatch of nothing': db => db.events.appendBatch(RUN, []),
  'events.read': db => db.events.read(RUN, 0),
  'events.length': db => db.events.length(RUN),
  'events.iterate': db => gather(db.events.iterate(RUN)),
  'events.tail': db => db.events.tail(RUN).next(),
  'events.verifyChain': db => db.events.verifyChain(RUN),
  'cells.read': db => db.cells.read(RUN, 'c'),
  'cells.set': db => db.cells.set(RUN, 'c', 1),
  'machines.define': db => db.machines.define(RUN, 'm', { initial: 'a', transitions: [] }),
  'machines.current': db => db.machines.current(RUN, 'm'),
  'traces.record': db => db.traces.record(RUN, { type: 'Thought', content: '' }),
  'traces.list': db => db.traces.list(RUN),
  'runs.create': db => db.runs.create(),
  'runs.create with a parent': db => db.runs.create({ parentRun: RUN }),
  'runs.get': db => db.runs.get(RUN),
  'runs.query': db => db.runs.query(),
  'runs.delete': db => db.runs.delete(RUN),
  'runs.stats': db => db.runs.stats(),
  'runs.tombstones': db => db.runs.tombstones(),
  'transaction that writes': db => db.transaction(RUN, tx => tx.kv.put('k', 1)),
  'transaction that reads': db => db.transaction(RUN, tx => tx.kv.get('k'), { readOnly: true }),
  'transaction that does nothing': db => db.transaction(RUN, () => undefined),
  begin: db => db.begin(RUN),
  'begin of a run handle': db => db.run(RUN).begin(),
  'verifyIndices of one': db => db.verifyIndices(RUN),
  'verifyIndices of all': db => db.verifyIndices(),
  rebuildIndices: db => db.rebuildIndices(),
}

/** A closed database refuses every call. */
export function testClosing(suite: Suite): void {
  suite.holds('after close every call on every handle is CLOSED, and closing twice succeeds', async db => {
    const handles = [db, db.forTenant('acme')]
    await db.kv.put(RUN, 'k', 1)
    await db.close()
    await db.close()
    for (const handle of handles) {
      for (const [name, call] of Object.entries(CALLS)) await refused(call(handle), 'CLOSED', name)
    }
    await refused(db.run(RUN).kv.get('k'), 'CLOSED')
  })

  suite.holds('every call of a transaction that was open when the database closed is CLOSED', async db => {
    const tx = await db.begin(RUN)
    const other = await db.begin(RUN)
    await tx.kv.put('k', 1)
    await db.close()
    await refused(tx.kv.put('k', 2), 'CLOSED', 'put')
    await refused(tx.kv.get('k'), 'CLOSED', 'get')
    await refused(tx.events.append('n', 1), 'CLOSED', 'append')
    await refused(tx.commit(), 'CLOSED', 'commit')
    await refused(tx.rollback(), 'CLOSED', 'rollback')
    await refused(other.commit(), 'CLOSED', 'commit of another')
  })

  suite.holds('close waits for writes in flight, and each of them succeeds or is CLOSED', async db => {
    const writes = times(50, i => db.kv.put(RUN, `k${i}`, i))
    const closed = db.close()
    const settled = await Promise.allSettled(writes)
    await closed
    for (const outcome of settled) {
      if (outcome.status === 'rejected') await refused(Promise.reject(outcome.reason), 'CLOSED')
    }
    expect(settled).toHaveLength(50)
  })

  suite.holds('a checkpoint changes no visible data, and can run during writes', async db => {
    await Promise.all(times(50, i => db.events.append(RUN, 'n', i)))
    const before = await contentsOf(db, RUN)
    await db.checkpoint()
    expect(await contentsOf(db, RUN)).toEqual(before)
    await Promise.all([db.checkpoint(), ...times(50, i => db.events.append(RUN, 'n', 50 + i))])
    expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 100 })
    expect(db.stats()).toBeTypeOf('object')
    expect(db.recovery).toBeUndefined()
  })

  suite.holds('await using closes the database', async db => {
    {
      await using same = db
      await same.kv.put(RUN, 'k', 1)
    }
    await refused(db.kv.get(RUN, 'k'), 'CLOSED')
  })
}
