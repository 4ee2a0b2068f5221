import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { openNodeDisk } from './node-disk.ts'
import { openEmbedded } from './open.ts'

const folders: string[] = []
function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'annals-'))
  folders.push(made)
  return made
}
afterEach(() => {
  for (const made of folders.splice(0)) rmSync(made, { recursive: true, force: true })
})

describe('the embedded engine on a real disk', () => {
  it('keeps what was committed across close and open, with checkpoints in between', async () => {
    const path = folder()
    const model = new Map<string, string>()
    for (let round = 0; round < 5; round++) {
      const storage = await openEmbedded({
        disk: openNodeDisk(path, {}),
        walBytes: 20_000,
        cacheBytes: 50_000,
        durability: round % 2 ? 'relaxed' : 'durable',
      })
      for (const [key, value] of model) {
        const entry = await storage.get('s', 1, key)
        if (entry?.value !== value) throw new Error(`round ${round} ${key}: ${entry?.value} is not ${value}`)
      }
      for (let i = 0; i < 2000; i++) {
        const key = `key-${Math.floor(Math.random() * 3000)}`
        if (Math.random() < 0.3) {
          model.delete(key)
          await storage.commit({ operations: [{ op: 'delete', scope: 's', tag: 1, key }] })
        } else {
          const value = `value ${round} ${i} ${'x'.repeat(Math.random() * 300)}`
          model.set(key, value)
          await storage.commit({ operations: [{ op: 'put', scope: 's', tag: 1, key, value }] })
        }
      }
      const all = await storage.scan({ scope: 's', tag: 1 })
      expect(all.map(entry => [entry.key, entry.value])).toEqual(
        [...model].sort(([a], [b]) => (a < b ? -1 : 1)),
      )
      await storage.verify()
      await storage.checkpoint()
      await storage.verify()
      await storage.close()
    }
  })
})
