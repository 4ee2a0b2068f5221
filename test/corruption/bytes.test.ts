import { describe, expect, it } from 'vitest'
import { seedOfRun } from '../../src/testing/random.ts'
import {
  type BuiltStore,
  buildStore,
  bytesRead,
  type Files,
  judge,
  VARIANTS,
  type Verdict,
} from './damaged-store.ts'

/**
 * Failure matrix: "a flipped bit, a cut file" and "checkpoint damaged". Flips every byte of a small store and truncates
 * every file to every length. Each time, opening must fail with an error code, report a repair and show an earlier
 * state, or show all data.
 */
const seed = seedOfRun()

/** Odd, so that over time each kind of closer check is used. */
const UNREAD_AT_ONCE = 15

type Tally = Map<string, Map<Verdict, number>>

function count(tally: Tally, kind: string, verdict: Verdict, times = 1): void {
  const row = tally.get(kind) ?? new Map<Verdict, number>()
  tally.set(kind, row)
  row.set(verdict, (row.get(verdict) ?? 0) + times)
}

function print(title: string, tally: Tally): void {
  for (const [kind, row] of tally) {
    console.log(`${title}, ${kind}: ${[...row].map(([verdict, n]) => `${n} ${verdict}`).join(', ')}`)
  }
}

function kindOf(file: string): string {
  return file.replace(/-\d+$/, '')
}

function sizeOf(files: Files): number {
  return Object.values(files).reduce((sum, bytes) => sum + bytes.length, 0)
}

/** The position at which the trailing zeros of a file begin. */
function contentEnd(bytes: Uint8Array): number {
  let end = bytes.length
  while (end > 0 && bytes[end - 1] === 0) end--
  return end
}

/** The data files are the same in all variants that were not closed, so it is enough to damage them once. */
function damagedFiles(built: BuiltStore): [name: string, bytes: Uint8Array][] {
  const all = built.name === 'closed' || built.name === 'not closed'
  return Object.entries(built.files).filter(([name]) => all || !name.startsWith('data'))
}

/**
 * Flips each byte that is read on its own, alternating between one bit and all bits, starting with the seed. Damage to
 * unread bytes can't be noticed, so several of them are flipped together.
 */
async function flipAll(built: BuiltStore, tally: Tally): Promise<void> {
  const read = await bytesRead(built.files)
  for (const [name, bytes] of damagedFiles(built)) {
    const damaged = Buffer.from(bytes)
    const files = { ...built.files, [name]: damaged }
    const isRead = (at: number): boolean => read.get(name)?.[at] === 1
    for (let at = 0, end = 0; at < bytes.length; at = end) {
      const noticed = isRead(at)
      end = at + 1
      while (!noticed && end < Math.min(bytes.length, at + UNREAD_AT_ONCE) && !isRead(end)) end++
      const mask = noticed && (at + seed) % 2 === 0 ? 0x01 : 0xff
      flip(damaged, at, end, mask)
      const where = `${built.name}, seed ${seed}: bytes ${at} to ${end} of ${name} with mask ${mask}`
      const how = { gets: at % 8 === 0, goOn: at % 16 === 1, readOnly: at % 16 === 2 }
      const { verdict, version } = await judge(built, files, how).catch((error: unknown) => {
        throw new Error(where, { cause: error })
      })
      count(tally, `${kindOf(name)} flipped`, verdict, end - at)
      if (verdict === 'FORMAT_TOO_NEW') throw new Error(`${where}: a flipped bit passes for a new format`)
      if (verdict === 'right' && noticed) throw new Error(`${where}: not noticed`)
      if (built.version - version > built.commitsLostMax) {
        throw new Error(`${where}: cut off version ${version + 1}, which was known to be durable`)
      }
      flip(damaged, at, end, mask)
    }
  }
}

function flip(bytes: Uint8Array, from: number, to: number, mask: number): void {
  for (let at = from; at < to; at++) bytes[at] ^= mask
}

async function cutAll(built: BuiltStore, tally: Tally): Promise<void> {
  const read = await bytesRead(built.files)
  for (const [name, bytes] of damagedFiles(built)) {
    const needed = (read.get(name) as Uint8Array).lastIndexOf(1) + 1
    // The last frame of a log is padded to eight bytes and followed by eight zeros, which mark its end.
    const logEnd = Math.ceil(contentEnd(bytes) / 8) * 8 + 8
    const harmless = name.startsWith('wal') ? Math.min(needed, logEnd) : needed
    for (let length = 0; length < bytes.length; length++) {
      const where = `${built.name}, seed ${seed}: ${name} cut to ${length} bytes`
      const files = { ...built.files, [name]: bytes.subarray(0, length) }
      const how = { gets: length % 8 === 0, goOn: length % 16 === 1, readOnly: length % 16 === 2 }
      const { verdict } = await judge(built, files, how).catch((error: unknown) => {
        throw new Error(where, { cause: error })
      })
      count(tally, `${kindOf(name)} cut`, verdict)
      if (verdict === 'FORMAT_TOO_NEW') throw new Error(`${where}: a cut file passes for a new format`)
      if (verdict === 'right' && length < harmless) throw new Error(`${where}: not noticed`)
    }
  }
}

describe('failure matrix, a flipped bit, a cut file', () => {
  for (const variant of VARIANTS) {
    it(`every byte flipped, every length cut, ${variant}: CORRUPT or reported, never a wrong answer`, async () => {
      const started = performance.now()
      const built = await buildStore(variant, seed)
      const tally: Tally = new Map()
      await flipAll(built, tally)
      await cutAll(built, tally)
      const entries = built.states[built.version].split(';').length
      const ms = Math.round(performance.now() - started)
      console.log(
        `${variant}: seed ${seed}, ${entries} entries, ${sizeOf(built.files)} bytes in ${Object.keys(built.files).length} files, ${ms} ms`,
      )
      print(variant, tally)
      expect(tally.size).toBeGreaterThan(0)
    }, 600_000)
  }
})
