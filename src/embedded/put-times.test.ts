import { expect, test } from 'vitest'
import { SimulatedDisk } from '../../test/simulation/simulated-disk.ts'
import { TAGS } from '../engine/keys.ts'
import type { Put } from '../engine/storage.ts'
import type { EmbeddedStore } from './embedded-store.ts'
import { openEmbedded } from './open.ts'

const put = (key: string, more: Partial<Put> = {}): Put => ({
  op: 'put',
  scope: 's',
  tag: TAGS.kv,
  key,
  value: `value of ${key}`,
  ...more,
})

async function timesIn(store: EmbeddedStore): Promise<unknown> {
  const entries = await store.scan({ scope: 's', tag: TAGS.kv })
  return entries.map(({ key, value, time, expiresAt }) => ({ key, value, time, expiresAt }))
}

test('P13: entries keep their times when they are read from the log and from a checkpoint', async () => {
  const disk = new SimulatedDisk()
  const open = (from: SimulatedDisk): Promise<EmbeddedStore> =>
    openEmbedded({ disk: from.handle(), warn: () => undefined })
  let store = await open(disk)
  const later = store.now() + 3_600_000
  await store.commit({
    operations: [
      put('a', { time: 1_000 }),
      put('b'),
      put('c', { time: 2_000, expiresAt: later }),
      put('d', { expiresAt: later }),
      put('other', { time: 3_000, tag: TAGS.state }),
      put('e', { time: 4_000 }),
    ],
  })
  await store.commit({ operations: [put('f')] })
  const written = await timesIn(store)
  expect(written).toMatchObject([
    { time: 1_000 },
    {},
    { time: 2_000, expiresAt: later },
    {},
    { time: 4_000 },
    {},
  ])
  await store.commit({ operations: [] })
  const crashed = disk.afterProcessCrash()
  await store.close()
  store = await open(crashed)
  expect(await timesIn(store)).toEqual(written)
  expect((await store.get('s', TAGS.state, 'other'))?.time).toBe(3_000)
  await store.checkpoint()
  await store.close()
  store = await open(crashed)
  expect(await timesIn(store)).toEqual(written)
  await store.close()
})
