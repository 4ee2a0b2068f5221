import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { seedOfRun } from '../../src/testing/random.ts'
import { newFolder } from './folder.ts'

/** Memory and disk space stay bounded. They are measured in separate processes with the engine's default settings. */
const BULK = fileURLToPath(new URL('bulk.mjs', import.meta.url))
const MIB = 1024 * 1024
const VALUE_BYTES = 400

interface Facts {
  readonly rssAtStart: number
  readonly rssMax: number
  readonly folderBytes: number
  readonly overwrittenBytes: number
  readonly deletedBytes: number
  readonly ms: number
}

async function bulk(settings: Record<string, unknown>): Promise<Facts> {
  const { stdout } = await promisify(execFile)(process.execPath, [
    BULK,
    newFolder(),
    JSON.stringify(settings),
  ])
  return JSON.parse(stdout) as Facts
}

const mib = (bytes: number): string => `${(bytes / MIB).toFixed(1)} MiB`

describe('limits', () => {
  it('memory stays within the limit while 200,000 entries of 400 B are written and read with 8 MiB of cache', async () => {
    const seed = seedOfRun()
    const facts = await bulk({
      task: 'grow',
      count: 200_000,
      valueBytes: VALUE_BYTES,
      cacheBytes: 8 * MIB,
      seed,
    })
    console.log(
      `memory, seed ${seed}: at most ${mib(facts.rssMax)} resident (${mib(facts.rssAtStart)} at the start), ` +
        `${mib(facts.folderBytes)} on disk, ${facts.ms} ms`,
    )
    expect(facts.folderBytes).toBeGreaterThan(200_000 * VALUE_BYTES)
    expect(facts.rssMax).toBeLessThan(250 * MIB)
  })

  it('the space of overwritten and deleted entries is reclaimed', async () => {
    const seed = seedOfRun()
    const count = 20_000
    const facts = await bulk({ task: 'churn', count, valueBytes: VALUE_BYTES, cacheBytes: 8 * MIB, seed })
    const live = count * (VALUE_BYTES + 40)
    console.log(
      `space, seed ${seed}: ${mib(live)} live, overwritten 10 times ${mib(facts.overwrittenBytes)}, all deleted ` +
        `${mib(facts.deletedBytes)}, closed ${mib(facts.folderBytes)}, at most ${mib(facts.rssMax)} resident, ${facts.ms} ms`,
    )
    expect(facts.overwrittenBytes).toBeLessThan(3 * live + 64 * MIB)
    expect(facts.deletedBytes).toBeLessThan(MIB)
    expect(facts.folderBytes).toBeLessThan(MIB)
  })
})
