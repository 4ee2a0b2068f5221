import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'
import { openNodeDisk } from '../disk/node-disk.ts'
import { testStorage } from '../testing/storage-suite.ts'
import { openEmbedded } from './open.ts'

const folders: string[] = []
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'annals-suite-'))
  folders.push(folder)
  return folder
}

testStorage('embedded, in memory', options => openEmbedded({ ...options }))
testStorage('embedded, on disk, durable', options =>
  openEmbedded({ ...options, disk: openNodeDisk(newFolder(), {}) }),
)
testStorage('embedded, on disk, relaxed, with frequent checkpoints and almost no cache', options =>
  openEmbedded({
    ...options,
    disk: openNodeDisk(newFolder(), {}),
    durability: 'relaxed',
    walBytes: 10_000,
    cacheBytes: 10_000,
    garbageBytes: 50_000,
    fileBytes: 100_000,
  }),
)
