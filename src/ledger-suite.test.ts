import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'
import { openedOf } from '../test/ledger/opened-ledger.ts'

import { type Annals, open, openOn } from './annals.ts'

import { openNodeDisk } from './disk/node-disk.ts'
import { openEmbedded } from './embedded/open.ts'
import { type OpenLedgerOptions, testLedger } from './testing/ledger-suite.ts'

const folders: string[] = []
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'annals-ledger-'))
  folders.push(folder)
  return folder
}

/** Opens a store as users do. `open` takes no clock, so tests that set one open the engine themselves. */
async function openIn(path: string | undefined, options: OpenLedgerOptions): Promise<Annals> {
  const { clock, ...ledger } = options
  // The storage suite tests durability. Here, waiting for the disk would take most of the time.
  const durability = 'relaxed'
  if (clock === undefined) {
    return open(path === undefined ? { memory: true, ledger } : { path, durability, ledger })
  }
  const disk = path === undefined ? undefined : openNodeDisk(path)
  const storage = await openEmbedded({ disk, clock, durability })
  return openOn(storage, { ledger })
}

testLedger('embedded, in memory', async options => openedOf(await openIn(undefined, options)), {
  without: { reopen: 'a store in memory cannot be reopened' },
})

testLedger('embedded, in a folder', async options => {
  const path = newFolder()
  let current = await openIn(path, options)
  return {
    ...openedOf(current),
    async reopen() {
      await current.close()
      current = await openIn(path, options)
      return openedOf(current)
    },
    close: () => current.close(),
  }
})
