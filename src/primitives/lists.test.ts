import { expect, test } from 'vitest'
import { type Annals, openOn } from '../annals.ts'
import type { Entry, Range } from '../engine/storage.ts'
import { ReferenceStorage } from '../testing/reference-storage.ts'

/** A storage that calls `meanwhile` after the first page of a scan. */
class InterruptedStorage extends ReferenceStorage {
  meanwhile: (() => Promise<unknown>) | undefined

  override async scan(range: Range): Promise<readonly Entry[]> {
    const page = await super.scan(range)
    const { meanwhile } = this
    this.meanwhile = undefined
    await meanwhile?.()
    return page
  }
}

const COUNT = 40
const LISTS: Readonly<Record<string, (db: Annals) => Promise<number>>> = {
  'events.readByType': async db => (await db.events.readByType('r', 'n')).length,
  'cells.list': async db => (await db.cells.list('r')).length,
  'traces.list': async db => (await db.traces.list('r')).length,
  'traces.count': db => db.traces.count('r'),
}

for (const [name, list] of Object.entries(LISTS)) {
  test(`P11: ${name} returns all data of a run that is deleted meanwhile, or none`, async () => {
    const storage = new InterruptedStorage()
    const db = await openOn(storage)
    await db.runs.create({ runId: 'r' })
    for (let i = 0; i < COUNT; i++) {
      await db.events.append('r', 'n', i)
      await db.cells.set('r', `c${i}`, i)
      await db.traces.record('r', { type: 'Thought', content: 'x' })
    }
    storage.meanwhile = () => db.runs.delete('r')
    expect([0, COUNT]).toContain(await list(db))
  })
}
