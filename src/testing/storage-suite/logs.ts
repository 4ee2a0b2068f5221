import { expect } from 'vitest'
import { u64 } from '../../core/bytes.ts'
import { linkHash } from '../../core/hash.ts'
import { TAGS } from '../../engine/keys.ts'
import { parseLogEntry } from '../../engine/log.ts'
import type { Reader, TreeId } from '../../engine/storage.ts'
import { append, bodyHashOf, commit, del, keysOf, LOG, put, range, SCOPE, type Suite } from './suite.ts'

/** P7: the engine gives each appended event a sequence, a time and a hash link, and recognizes duplicates. */
export function testLogs(suite: Suite): void {
  suite.holds('P7: sequences count from 0, and each event is linked to the one before', async storage => {
    for (let i = 0; i < 20; i++) {
      const { appended, time } = await commit(storage, append(`body ${i}`))
      expect(appended).toMatchObject([{ sequence: i, time, duplicate: false, memo: '' }])
      const [head] = await storage.scan(range({ tag: LOG, reverse: true, limit: 1 }))
      expect(head).toMatchObject({ key: u64(i), time })
      expect(parseLogEntry(head)).toMatchObject({ sequence: i, time, hash: appended[0].hash })
    }
    expect(await bodiesOfChain(storage)).toEqual(Array.from({ length: 20 }, (_, i) => `body ${i}`))
  })

  suite.holds('P7: the appends of one commit get consecutive sequences in each log', async storage => {
    const ledger = { tag: TAGS.ledger }
    const { appended } = await commit(
      storage,
      append('a'),
      append('x', ledger),
      append('b'),
      put('k', '1'),
      append('y', ledger),
      append('c'),
    )
    expect(appended.map(({ sequence }) => sequence)).toEqual([0, 0, 1, 1, 2])
    expect(await bodiesOfChain(storage)).toEqual(['a', 'b', 'c'])
    expect(await bodiesOfChain(storage, { scope: SCOPE, tag: TAGS.ledger })).toEqual(['x', 'y'])
  })

  suite.holds('P7: 64 concurrent appends get contiguous sequences and one chain', async storage => {
    const outcomes = await Promise.all(Array.from({ length: 64 }, (_, i) => commit(storage, append(`${i}`))))
    const sequences = outcomes.map(({ appended }) => appended[0].sequence)
    expect([...sequences].sort((a, b) => a - b)).toEqual(Array.from({ length: 64 }, (_, i) => i))
    const bodies = await bodiesOfChain(storage)
    sequences.forEach((sequence, i) => {
      expect(bodies[sequence]).toBe(`${i}`)
    })
  })

  suite.holds('P7: concurrent appends to many logs do not mix', async storage => {
    const scopes = Array.from({ length: 10 }, (_, i) => `run-${i}`)
    await Promise.all(
      Array.from({ length: 200 }, (_, i) => commit(storage, append(`${i}`, { scope: scopes[i % 10] }))),
    )
    for (const scope of scopes) expect(await bodiesOfChain(storage, { scope, tag: LOG })).toHaveLength(20)
  })

  suite.holds('P7: events are found by sequence and by range of sequences', async storage => {
    await commit(storage, ...Array.from({ length: 300 }, (_, i) => append(`${i}`)))
    const entry = await storage.get(SCOPE, LOG, u64(255))
    expect(entry && parseLogEntry(entry).body).toBe('255')
    expect(await storage.get(SCOPE, LOG, u64(300))).toBeUndefined()
    const found = await storage.scan(range({ tag: LOG, from: u64(254), to: u64(258) }))
    expect(keysOf(found)).toEqual([254, 255, 256, 257].map(u64))
  })

  suite.holds('a second append with the same dedupe key returns the first one’s result', async storage => {
    const first = (await commit(storage, append('first', { dedupe: { key: 'once', memo: 'note' } })))
      .appended[0]
    expect(first).toMatchObject({ sequence: 0, duplicate: false, memo: 'note' })
    await commit(storage, append('other'))
    for (const dedupe of [{ key: 'once' }, { key: 'once', memo: 'another' }]) {
      const { appended } = await commit(storage, append('second', { dedupe }))
      expect(appended).toEqual([{ ...first, duplicate: true }])
    }
    expect(await bodiesOfChain(storage)).toEqual(['first', 'other'])
  })

  suite.holds('an append with the same dedupe key in the same commit is a duplicate', async storage => {
    const { appended } = await commit(
      storage,
      append('first', { dedupe: { key: 'once', memo: 'm' } }),
      append('second', { dedupe: { key: 'once' } }),
      append('third', { dedupe: { key: 'twice' } }),
    )
    expect(appended).toMatchObject([
      { sequence: 0 },
      { sequence: 0, duplicate: true, memo: 'm' },
      { sequence: 1 },
    ])
    expect(appended[1].hash).toBe(appended[0].hash)
    expect(await bodiesOfChain(storage)).toEqual(['first', 'third'])
  })

  suite.holds(
    'one of 64 concurrent appends with the same dedupe key is stored, and all return its result',
    async storage => {
      const outcomes = await Promise.all(
        Array.from({ length: 64 }, (_, i) => {
          const operation = append(`${i}`, { dedupe: { key: 'once', memo: `${i}` } })
          if (i % 2 === 0) return commit(storage, operation)
          return storage.update([], () => ({ operations: [operation], result: undefined }))
        }),
      )
      const answers = outcomes.map(({ appended }) => appended[0])
      expect(answers.filter(answer => !answer.duplicate)).toHaveLength(1)
      const [body, ...more] = await bodiesOfChain(storage)
      expect(more).toEqual([])
      for (const answer of answers)
        expect(answer).toMatchObject({ sequence: 0, memo: body, hash: answers[0].hash })
    },
  )

  suite.holds('dedupe keys belong to one log, so another scope or tag has its own', async storage => {
    const dedupe = { key: 'once' }
    const { appended } = await commit(
      storage,
      append('1', { dedupe }),
      append('2', { dedupe, tag: TAGS.ledger }),
      append('3', { dedupe, scope: 'elsewhere' }),
    )
    expect(appended.map(({ duplicate }) => duplicate)).toEqual([false, false, false])
  })

  suite.holds('the other operations of a commit with a duplicate take effect', async storage => {
    const dedupe = { key: 'once' }
    await commit(storage, append('1', { dedupe }), put('gone', ''))
    const { appended } = await commit(
      storage,
      append('2', { dedupe }),
      put('k', '1'),
      del('gone'),
      append('3'),
    )
    expect(appended).toMatchObject([
      { sequence: 0, duplicate: true },
      { sequence: 1, duplicate: false },
    ])
    expect(keysOf(await storage.scan(range()))).toEqual(['k'])
  })

  suite.holds(
    'dedupe keys and memos may hold every byte, and 1,000 of them are all remembered',
    async storage => {
      const keys = Array.from({ length: 1_000 }, (_, i) => `\0${String.fromCharCode(i % 256)}\xff${i}`)
      const operations = keys.map((key, i) => append(`${i}`, { dedupe: { key, memo: `${key}\0` } }))
      await commit(storage, ...operations)
      const { appended } = await commit(storage, ...operations)
      appended.forEach((answer, i) => {
        expect(answer).toMatchObject({ sequence: i, duplicate: true, memo: `${keys[i]}\0` })
      })
    },
  )

  suite.holdsInTime('P7: times in a log never go back, whatever the clock does', async (storage, clock) => {
    const times: number[] = []
    for (const jump of [0, 5, -1_000_000, 3, -clock.now(), 2_000_000]) {
      clock.jump(jump)
      times.push((await commit(storage, append('x'))).appended[0].time)
    }
    expect([...times].sort((a, b) => a - b)).toEqual(times)
    expect(await bodiesOfChain(storage)).toHaveLength(6)
  })

  suite.holdsInTime(
    'L8: a commit with an event from ahead of the clock, and every later commit, is not before that event',
    async (storage, clock) => {
      const ahead = clock.now() + 3_600_000
      const { time, appended } = await commit(storage, append('copied', { time: ahead }))
      expect([time, appended[0].time]).toEqual([ahead, ahead])
      const other = await commit(storage, append('own', { scope: `${SCOPE}-2` }), put('k', 'v'))
      expect(other.time).toBeGreaterThanOrEqual(ahead)
      expect(other.appended[0].time).toBeGreaterThanOrEqual(ahead)
      const entry = await storage.get(SCOPE, range().tag, 'k')
      expect(entry?.time).toBe(other.time)
    },
  )
}

/** Checks the sequences, times and hash links of a log, and returns the bodies of its events. */
export async function bodiesOfChain(
  reader: Reader,
  tree: TreeId = { scope: SCOPE, tag: LOG },
): Promise<string[]> {
  let prevHash = '\0'.repeat(32)
  let lastTime = 0
  return (await reader.scan(tree)).map((entry, sequence) => {
    const event = parseLogEntry(entry)
    const hash = linkHash(prevHash, sequence, event.time, bodyHashOf(event.body))
    expect(event).toEqual({ sequence, time: event.time, prevHash, hash, body: event.body })
    expect(entry.key).toBe(u64(sequence))
    expect(event.time).toBeGreaterThanOrEqual(lastTime)
    prevHash = hash
    lastTime = event.time
    return event.body
  })
}
