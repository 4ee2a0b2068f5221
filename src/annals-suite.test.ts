import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'

import { type Annals, open, openOn } from './annals.ts'

import { openNodeDisk } from './disk/node-disk.ts'
import { openEmbedded } from './embedded/open.ts'
import { type OpenAnnalsOptions, testAnnals } from './testing/annals-suite.ts'

const folders: string[] = []
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'annals-primitives-'))
  folders.push(folder)
  return folder
}

/** Opens a store as users do. `open` takes no clock, so tests that set one open the engine themselves. */
async function openIn(path: string | undefined, { guards = {}, clock }: OpenAnnalsOptions): Promise<Annals> {
  const verifyOnOpen = true
  // The storage suite tests durability. Here, waiting for the disk would take most of the time.
  const durability = 'relaxed'
  if (clock === undefined) {
    return open(path === undefined ? { memory: true, guards } : { path, guards, verifyOnOpen, durability })
  }
  const disk = path === undefined ? undefined : openNodeDisk(path)
  const storage = await openEmbedded({ disk, clock, verifyOnOpen, durability })
  return openOn(storage, { guards, verifyOnOpen })
}

testAnnals(
  'embedded, in memory',
  async options => {
    const db = await openIn(undefined, options)
    return { db, close: () => db.close() }
  },
  { noReopen: 'a store in memory cannot be reopened' },
)

testAnnals('embedded, in a folder', async options => {
  const path = newFolder()
  const db = await openIn(path, options)
  let current = db
  return {
    db,
    async reopen() {
      await current.close()
      current = await openIn(path, options)
      return current
    },
    close: () => current.close(),
  }
})
