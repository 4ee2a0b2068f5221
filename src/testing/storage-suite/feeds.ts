import { expect } from 'vitest'
import { type ByteString, fromU64 } from '../../core/bytes.ts'
import { dedupeTag, feedTag, TAGS } from '../../engine/keys.ts'
import { type FeedEntry, feedKey, parseFeed } from '../../engine/log.ts'
import type { Append, Entry, Reader } from '../../engine/storage.ts'
import { append, commit, drop, eventually, expectError, LOG, put, range, SCOPE, type Suite } from './suite.ts'

const FEED: ByteString = 'default:_shared:_shared:_shared'

function listed(body: ByteString, more: Partial<Append> = {}): Append {
  return append(body, { feed: FEED, ...more })
}

function entriesOf(reader: Reader, from?: ByteString): Promise<readonly Entry[]> {
  return reader.scan(range({ scope: FEED, tag: feedTag(LOG), from }))
}

async function feedOf(reader: Reader): Promise<FeedEntry[]> {
  return (await entriesOf(reader)).map(parseFeed)
}

/** A feed lists the appends to many logs in commit order. */
export function testFeeds(suite: Suite): void {
  suite.holds(
    'a feed lists an append with its log, sequence and time, under the version of the commit',
    async storage => {
      const { appended, version } = await commit(storage, listed('a'), listed('b', { scope: 'other' }))
      const entries = await entriesOf(storage)
      expect(entries.map(parseFeed)).toEqual([
        { scope: SCOPE, sequence: 0, time: appended[0].time },
        { scope: 'other', sequence: 0, time: appended[1].time },
      ])
      expect(entries.map(({ key }) => fromU64(key))).toEqual([version, version])
      expect(entries.map(entry => entry.version)).toEqual([version, version])
    },
  )

  suite.holds('an append that names no feed is not listed, and neither is a duplicate', async storage => {
    await commit(storage, append('quiet'), listed('a', { dedupe: { key: 'once' } }))
    await commit(storage, listed('b', { dedupe: { key: 'once' } }))
    expect((await feedOf(storage)).map(({ sequence }) => sequence)).toEqual([1])
  })

  suite.holds('every tag has a feed of its own', async storage => {
    await commit(storage, listed('a'), listed('b', { tag: TAGS.ledger }))
    const other = await storage.scan(range({ scope: FEED, tag: feedTag(TAGS.ledger) }))
    expect([(await feedOf(storage)).length, other.length]).toEqual([1, 1])
    expect(feedTag(LOG)).not.toBe(dedupeTag(LOG))
  })

  suite.holds('an update that reads from a feed runs after every append in flight', async storage => {
    const appends = Array.from({ length: 50 }, (_, i) =>
      commit(storage, listed(`${i}`, { scope: `run-${i}` })),
    )
    const place = { scope: FEED, tag: feedTag(LOG), key: feedKey(0, 0) }
    await storage.update([place], () => ({ operations: [], result: undefined }))
    expect(await feedOf(storage)).toHaveLength(50)
    await Promise.all(appends)
  })

  suite.holds('a reader that continues from the last key it saw misses no append', async storage => {
    const seen: string[] = []
    let last: ByteString | undefined
    const follow = async (): Promise<void> => {
      for (const entry of await entriesOf(storage, last === undefined ? undefined : `${last}\0`)) {
        const { scope, sequence } = parseFeed(entry)
        seen.push(`${scope} ${sequence}`)
        last = entry.key
      }
    }
    let writing = true
    const appends = Promise.all(
      Array.from({ length: 200 }, (_, i) => commit(storage, listed(`${i}`, { scope: `run-${i % 7}` }))),
    ).finally(() => {
      writing = false
    })
    while (writing) {
      await follow()
      // Reads from memory don't yield to the event loop, so yield here to let the appends run.
      await new Promise(resolve => setImmediate(resolve))
    }
    await appends
    await follow()
    expect(new Set(seen).size).toBe(200)
    expect(seen).toHaveLength(200)
    for (let run = 0; run < 7; run++) {
      const sequences = seen
        .filter(line => line.startsWith(`run-${run} `))
        .map(line => Number(line.split(' ')[1]))
      expect(sequences).toEqual(sequences.map((_, i) => i))
    }
  })

  suite.holds('subscribers of a feed are notified of listed appends', async storage => {
    let heard = 0
    const stop = await storage.subscribe({ scope: FEED, tag: feedTag(LOG) }, () => {
      heard++
    })
    await commit(storage, listed('a'))
    await eventually(() => heard > 0)
    stop()
  })

  suite.holds('dropping a log keeps its entries in the feed', async storage => {
    await commit(storage, listed('a'))
    await commit(storage, drop())
    await commit(storage, listed('b'))
    expect((await feedOf(storage)).map(({ sequence }) => sequence)).toEqual([0, 0])
  })

  suite.holds('writes into a feed are refused, and its scope is validated', async storage => {
    await expectError(commit(storage, put('k', 'v', { scope: FEED, tag: feedTag(LOG) })), 'INVALID_OPERATION')
    await expectError(commit(storage, append('a', { feed: '' })), 'INVALID_ARGUMENT')
    await expectError(commit(storage, append('a', { feed: 'a\0b' })), 'INVALID_ARGUMENT')
  })
}
