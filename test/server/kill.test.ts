import { afterEach, expect, test } from 'vitest'
import { createClient } from '../../src/client.ts'
import type { RunEventRecord, RunEventWrite } from '../../src/index.ts'
import { newEvent } from '../../src/testing/ledger-suite/events.ts'
import { ServerProcess } from './server-process.ts'

const WRITERS = 16
const KILLS = 4
const APPENDS_BETWEEN = 250

const server = new ServerProcess()
afterEach(() => server.remove())

function noteOf(runId: string, logicalAttemptId: number): RunEventWrite {
  return newEvent({ eventType: 'Noted', runId, logicalAttemptId, payload: { text: 'x'.repeat(300) } })
}

test('a server killed under load loses no acknowledged write, and its clients reconnect', async () => {
  await server.start()
  const retry = { retries: 200, firstMs: 10, maxMs: 100 }
  const client = createClient({ url: server.url, retry })
  const acknowledged = new Map<string, { readonly runId: string; readonly runSeq: number }>()
  let isDone = false
  let waiting: { readonly count: number; readonly resolve: () => void } | undefined

  const writer = async (runId: string): Promise<void> => {
    for (let i = 1; !isDone; i++) {
      const event = noteOf(runId, i)
      const { eventId, runSeq } = await client.ledger.appendEvent(event)
      expect(eventId).toBe(event.eventId)
      acknowledged.set(eventId, { runId, runSeq })
      if (waiting !== undefined && acknowledged.size >= waiting.count) waiting.resolve()
    }
  }
  const reached = (count: number): Promise<void> => new Promise(resolve => (waiting = { count, resolve }))

  const stop = new AbortController()
  const followed: RunEventRecord[] = []
  const following = (async () => {
    for await (const { record } of client.ledger.subscribeAll({ signal: stop.signal })) {
      followed.push(record)
      // The last event. It is sent after all others were answered.
      if (record.runId === 'last') return
    }
  })()
  const writing = Promise.all(Array.from({ length: WRITERS }, (_, i) => writer(`run-${i % 4}-${i}`)))
  for (let kill = 1; kill <= KILLS; kill++) {
    await reached(kill * APPENDS_BETWEEN)
    await server.end('SIGKILL')
    await server.start()
  }
  await reached((KILLS + 1) * APPENDS_BETWEEN)
  isDone = true
  await writing
  await client.ledger.appendEvent(noteOf('last', 1)).then(({ eventId, runSeq }) => {
    acknowledged.set(eventId, { runId: 'last', runSeq })
  })
  await following

  const seen = new Map(followed.map(record => [record.eventId, record]))
  expect(seen.size, 'none came twice').toBe(followed.length)
  expect(seen.size).toBe(acknowledged.size)
  for (const [eventId, { runId, runSeq }] of acknowledged) {
    expect(seen.get(eventId)).toMatchObject({ runId, runSeq })
  }
  for (let i = 0; i < WRITERS; i++) {
    const runId = `run-${i % 4}-${i}`
    const own = followed.filter(record => record.runId === runId).map(({ runSeq }) => runSeq)
    expect(own).toEqual(own.map((_, place) => place + 1))
    expect(await client.ledger.verifyRun(runId)).toEqual({ isValid: true, events: own.length })
  }
  console.log(`${acknowledged.size} appends answered for, ${KILLS} kills, none lost, none twice`)
  expect(await server.end('SIGTERM'), 'a server that is asked to end does so').toBe(0)
}, 600_000)
