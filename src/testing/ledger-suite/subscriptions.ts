import { expect } from 'vitest'
import { bad, refused, take, times } from '../annals-suite/suite.ts'
import { newEvent, RUN, said } from './events.ts'
import { type LedgerSuite, tell } from './suite.ts'

/** LD17, L32: subscriptions deliver records as they are appended. */
export function testSubscriptions(suite: LedgerSuite): void {
  suite.holds(
    'LD17: subscribe delivers stored records, then new ones, each once and in order',
    async ledger => {
      await tell(ledger, ['RunStarted', 'StepStarted a'])
      const records = ledger.subscribe({ runId: RUN })
      expect((await take(records, 2)).map(({ runSeq }) => runSeq)).toEqual([1, 2])
      const live = take(records, 3)
      await ledger.appendEvent(said('StepCompleted a'))
      await ledger.appendEvent(said('RunStarted'))
      await ledger.appendEvents([said('RunCompleted'), said('Noted')])
      expect(await live).toEqual((await ledger.fetchEvents(RUN, { afterSeq: 2 })).slice(0, 3))
      await records.return()
    },
  )

  suite.holds(
    'LD17: subscribe can start after any sequence, at the end, and in a run that does not exist yet',
    async ledger => {
      const early = ledger.subscribe({ runId: 'later' })
      const first = early.next()
      await tell(ledger, ['RunStarted', 'StepStarted a', 'StepCompleted a'])
      const inside = ledger.subscribe({ runId: RUN, afterSeq: 2 })
      expect((await take(inside, 1))[0].runSeq).toBe(3)
      const atEnd = ledger.subscribe({ runId: RUN, afterSeq: 3 })
      const next = atEnd.next()
      await ledger.appendEvent(said('RunCompleted'))
      expect((await next).value).toMatchObject({ runSeq: 4 })
      await ledger.appendEvent(newEvent({ runId: 'later' }))
      expect((await first).value).toMatchObject({ runId: 'later', runSeq: 1 })
      for (const open of [early, inside, atEnd]) await open.return()
    },
  )

  suite.holds('LD17: 10 subscribers each get all of 200 concurrently appended records', async ledger => {
    const readers = times(10, () => {
      const records = ledger.subscribe({ runId: RUN })
      return take(records, 200).finally(() => records.return())
    })
    await Promise.all(times(200, i => ledger.appendEvent(newEvent({ eventType: `Noted${i}` }))))
    for (const records of await Promise.all(readers)) {
      expect(records.map(({ runSeq }) => runSeq)).toEqual(times(200, i => i + 1))
    }
  })

  suite.holds('LD17: return() ends a waiting subscription without a signal', async ledger => {
    await tell(ledger, ['RunStarted'])
    const ended = { done: true, value: undefined }
    for (const open of [ledger.subscribe({ runId: RUN }), ledger.subscribeAll()]) {
      await open.next()
      const next = open.next()
      // Nothing shows that the subscription has begun to wait. After 20 other reads it has.
      for (let i = 0; i < 20; i++) await ledger.fetchEvents(RUN)
      expect(await open.return()).toEqual(ended)
      expect(await next).toEqual(ended)
      expect(await open.next()).toEqual(ended)
    }
  })

  suite.holds(
    'LD17: an aborted signal ends a subscription without an error, before and while it waits',
    async ledger => {
      await tell(ledger, ['RunStarted'])
      const before = ledger.subscribe({ runId: RUN, signal: AbortSignal.abort() })
      expect(await before.next()).toEqual({ done: true, value: undefined })
      const stop = new AbortController()
      const records = ledger.subscribe({ runId: RUN, signal: stop.signal })
      const all = ledger.subscribeAll({ signal: stop.signal })
      await take(records, 1)
      await take(all, 1)
      const ends = [records.next(), all.next()]
      stop.abort()
      for (const end of await Promise.all(ends)) expect(end).toEqual({ done: true, value: undefined })
    },
  )

  suite.holds(
    'LD17: subscribeAll delivers the records of all runs, and keeps the order within each run',
    async ledger => {
      const feed = ledger.subscribeAll()
      const items = take(feed, 60)
      await Promise.all(
        times(60, i => ledger.appendEvent(newEvent({ runId: `run-${i % 4}`, eventType: `Noted${i}` }))),
      )
      const seen = await items
      for (const run of times(4, i => `run-${i}`)) {
        const own = seen.filter(({ record }) => record.runId === run).map(({ record }) => record)
        expect(own).toEqual(await ledger.fetchEvents(run))
      }
      await feed.return()
    },
  )

  suite.holds('L32, LD17: a subscriber with a cursor gets exactly the records after it', async ledger => {
    await Promise.all(
      times(30, i => ledger.appendEvent(newEvent({ runId: `run-${i % 3}`, eventType: `Noted${i}` }))),
    )
    const feed = ledger.subscribeAll()
    const all = await take(feed, 30)
    await feed.return()
    for (const at of [0, 13, 28]) {
      const rest = ledger.subscribeAll({ cursor: all[at].cursor })
      expect(await take(rest, 29 - at)).toEqual(all.slice(at + 1))
      const live = rest.next()
      await ledger.appendEvent(newEvent({ runId: 'run-0', eventType: `Late${at}` }))
      expect((await live).value).toMatchObject({
        record: { eventType: at === 0 ? 'Late0' : expect.any(String) },
      })
      await rest.return()
    }
  })

  suite.holds(
    'L32, LD17: a cursor is valid after reopening',
    async (ledger, given) => {
      await tell(ledger, ['RunStarted', 'StepStarted a', 'StepCompleted a'])
      const feed = ledger.subscribeAll()
      const [, second, third] = await take(feed, 3)
      await feed.return()
      const { ledger: again } = await given.reopen()
      const rest = again.subscribeAll({ cursor: second.cursor })
      expect(await take(rest, 1)).toEqual([third])
      await rest.return()
    },
    ['reopen'],
  )

  suite.holds('LD17: invalid subscription options are refused', async ledger => {
    for (const cursor of ['', 'x', '0', 'zz'.repeat(12), 7, null]) {
      await refused(ledger.subscribeAll({ cursor: bad(cursor) }).next(), 'INVALID_ARGUMENT', `${cursor}`)
    }
    for (const afterSeq of [-1, 1.5, '1', null]) {
      await refused(ledger.subscribe({ runId: RUN, afterSeq: bad(afterSeq) }).next(), 'INVALID_ARGUMENT')
    }
    await refused(ledger.subscribe(bad({ afterSeq: 1 })).next(), 'INVALID_ARGUMENT')
    await refused(ledger.subscribe({ runId: RUN, signal: bad({}) }).next(), 'INVALID_ARGUMENT')
  })

  suite.holds(
    'LD17: a subscriber of a purged run gets EVENT_CHAIN_BROKEN, and no record of a later run with its id',
    async (ledger, { runs }) => {
      await tell(ledger, ['RunStarted', 'StepStarted a'])
      const [waiting, slow] = [ledger.subscribe({ runId: RUN }), ledger.subscribe({ runId: RUN })]
      await take(waiting, 2)
      await take(slow, 2)
      const heard = refused(waiting.next(), 'EVENT_CHAIN_BROKEN')
      await runs.delete(RUN, { purgeLedger: true, reason: 'asked to forget' })
      await ledger.appendEvents(times(4, i => newEvent({ eventType: `Later${i}` })))
      await heard
      await refused(slow.next(), 'EVENT_CHAIN_BROKEN')
    },
    ['runs'],
  )
}
