import { expect } from 'vitest'
import { AnnalsError } from '../../index.ts'
import { bad, gather, refused, times } from '../annals-suite/suite.ts'
import { newEvent, RUN } from './events.ts'
import type { LedgerApi, LedgerSuite } from './suite.ts'

async function note(ledger: LedgerApi, count: number): Promise<void> {
  await ledger.appendEvents(times(count, i => newEvent({ eventType: `Noted${i}` })))
}

/** Resolves if the reader got all `count` records, no record, or the error that the run was deleted. */
async function allOrDeleted(read: Promise<number>, count: number): Promise<void> {
  const length = await read.catch(error => {
    if (error instanceof AnnalsError && error.code === 'EVENT_CHAIN_BROKEN') return count
    throw error
  })
  // A run that was deleted before the first page was read has no records.
  expect([0, count]).toContain(length)
}

/** LD12: reads of a run’s records. */
export function testFetching(suite: LedgerSuite): void {
  suite.holds('LD12: an unknown run reads as [], null or RUN_NOT_FOUND', async ledger => {
    expect(await ledger.fetchEvents('nobody')).toEqual([])
    expect(await ledger.getSnapshot('nobody')).toBeNull()
    await refused(ledger.projectSnapshot('nobody'), 'RUN_NOT_FOUND')
    await refused(ledger.verifyRun('nobody'), 'RUN_NOT_FOUND')
    expect(await ledger.alerts({ runId: 'nobody' })).toEqual([])
    // The reads did not create the run.
    expect(await ledger.getSnapshot('nobody')).toBeNull()
  })

  suite.holds('LD12: afterSeq is exclusive, and may be any sequence', async ledger => {
    await note(ledger, 10)
    for (const [afterSeq, expected] of [
      [0, 10],
      [1, 9],
      [9, 1],
      [10, 0],
      [11, 0],
      [Number.MAX_SAFE_INTEGER, 0],
    ]) {
      const records = await ledger.fetchEvents(RUN, { afterSeq })
      expect(records.map(({ runSeq }) => runSeq)).toEqual(times(expected, i => afterSeq + 1 + i))
    }
  })

  suite.holds('LD12: consecutive pages return every record once', async ledger => {
    await note(ledger, 25)
    const seen: number[] = []
    for (let afterSeq = 0; ; ) {
      const page = await ledger.fetchEvents(RUN, { afterSeq, limit: 7 })
      if (page.length === 0) break
      expect(page.length).toBeLessThanOrEqual(7)
      seen.push(...page.map(({ runSeq }) => runSeq))
      afterSeq = page[page.length - 1].runSeq
    }
    expect(seen).toEqual(times(25, i => i + 1))
  })

  suite.holds('LD12: fetchEvents returns all records, or at most limit of them', async ledger => {
    await note(ledger, 1_203)
    const records = await ledger.fetchEvents(RUN)
    expect(records.map(({ runSeq }) => runSeq)).toEqual(times(1_203, i => i + 1))
    expect(Object.isFrozen(records)).toBe(true)
    expect(await ledger.fetchEvents(RUN, { afterSeq: 100 })).toHaveLength(1_103)
    expect(await ledger.fetchEvents(RUN, { limit: 10_000 })).toHaveLength(1_203)
    expect(await ledger.fetchEvents(RUN, { limit: 1_000 })).toHaveLength(1_000)
    expect(await ledger.fetchEvents(RUN, { limit: 1 })).toHaveLength(1)
  })

  suite.holds(
    'LD12: fetchEvents without a limit returns a run that is longer than any page',
    async ledger => {
      await note(ledger, 10_000)
      await ledger.appendEvents(times(1_001, i => newEvent({ eventType: `More${i}` })))
      expect(await ledger.fetchEvents(RUN)).toHaveLength(11_001)
      let last = 0
      for await (const { runSeq } of ledger.iterateEvents(RUN)) expect(runSeq).toBe(++last)
      expect(last).toBe(11_001)
    },
  )

  suite.holds('LD12, LD17: iterateEvents yields the records after a sequence, one by one', async ledger => {
    await note(ledger, 50)
    const whole = await ledger.fetchEvents(RUN)
    for (const afterSeq of [undefined, 0, 1, 49, 50, 51, Number.MAX_SAFE_INTEGER]) {
      const options = afterSeq === undefined ? {} : { afterSeq }
      expect(await gather(ledger.iterateEvents(RUN, options))).toEqual(whole.slice(afterSeq))
    }
    expect(await gather(ledger.iterateEvents('nobody'))).toEqual([])
    for await (const { runSeq } of ledger.iterateEvents(RUN, { afterSeq: 7 })) {
      expect(runSeq).toBe(8)
      break
    }
    for (const options of [{ afterSeq: -1 }, { afterSeq: 1.5 }, { limit: 5 }, null]) {
      await refused(
        gather(ledger.iterateEvents(RUN, bad(options))),
        'INVALID_ARGUMENT',
        JSON.stringify(options),
      )
    }
  })

  suite.holds(
    'LD12: a reader of a run that is being deleted gets all records or an error, never a part of them',
    async (ledger, { runs }) => {
      const count = 1_100
      const purge = (): Promise<unknown> => runs.delete(RUN, { purgeLedger: true, reason: 'a test' })
      // The deleted run has no successor with its id, a shorter one, or a longer one.
      for (const successor of [0, 1, count + 100]) {
        await note(ledger, count)
        let seen = 0
        const iterated = async (): Promise<number> => {
          for await (const _ of ledger.iterateEvents(RUN)) {
            if (++seen > 1) continue
            await purge()
            if (successor > 0) await note(ledger, successor)
          }
          return seen
        }
        await allOrDeleted(iterated(), count)
        if (successor > 0) await purge()
      }
      for (const turns of times(6, i => i * 5)) {
        await note(ledger, count)
        const fetched = ledger.fetchEvents(RUN)
        const checked = allOrDeleted(
          fetched.then(({ length }) => length),
          count,
        )
        for (let turn = 0; turn < turns; turn++) await new Promise(resolve => setImmediate(resolve))
        await purge()
        await checked
      }
    },
    ['runs'],
  )

  suite.holds('LD12: an invalid limit or afterSeq is INVALID_ARGUMENT', async ledger => {
    await note(ledger, 1)
    for (const limit of [0, -1, 1.5, 10_001, '5', null]) {
      await refused(ledger.fetchEvents(RUN, { limit: bad(limit) }), 'INVALID_ARGUMENT', `limit ${limit}`)
    }
    for (const afterSeq of [-1, 1.5, '1', null, 2 ** 53]) {
      await refused(
        ledger.fetchEvents(RUN, { afterSeq: bad(afterSeq) }),
        'INVALID_ARGUMENT',
        `after ${afterSeq}`,
      )
    }
    await refused(ledger.fetchEvents(RUN, bad({ after: 1 })), 'INVALID_ARGUMENT', 'a misspelt option')
  })

  suite.holds('LD12: every reader refuses an invalid run id', async ledger => {
    for (const runId of ['', 'a\0b', '\ud800', null, 7]) {
      await refused(ledger.fetchEvents(bad(runId)), 'INVALID_ARGUMENT')
      await refused(gather(ledger.iterateEvents(bad(runId))), 'INVALID_ARGUMENT')
      await refused(ledger.getSnapshot(bad(runId)), 'INVALID_ARGUMENT')
      await refused(ledger.projectSnapshot(bad(runId)), 'INVALID_ARGUMENT')
      await refused(ledger.verifyRun(bad(runId)), 'INVALID_ARGUMENT')
    }
  })
}
