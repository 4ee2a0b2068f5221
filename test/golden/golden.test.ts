import { cpSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { deflateSync } from 'node:zlib'
import { afterAll, describe, expect, it } from 'vitest'
import { linkHash, sha256, sha256Hex, ZERO_HASH } from '../../src/core/hash.ts'
import { decodeValue } from '../../src/core/value.ts'
import { openNodeDisk } from '../../src/disk/node-disk.ts'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { FORMAT } from '../../src/embedded/format.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import { HEAD_KEY, headTag, TAGS } from '../../src/engine/keys.ts'
import { parseHead, parseLogEntry } from '../../src/engine/log.ts'
import { inFormat } from '../other-format.ts'

/** Failure matrix: "a newer file format". A store of each earlier format opens or is refused with an error code. */
const GOLDEN = fileURLToPath(new URL('.', import.meta.url))
const STORES = ['closed', 'killed'] as const
const BYTES_MAX = 300 * 1024

interface Content {
  readonly format: number
  readonly now: number
  readonly version: number
  readonly trees: readonly {
    readonly scope: string
    readonly tag: number
    /** Key, value, version, time, expiry. */
    readonly entries: readonly (readonly unknown[])[]
  }[]
}

const temporary = mkdtempSync(join(tmpdir(), 'annals-golden-'))
afterAll(() => rmSync(temporary, { recursive: true, force: true }))
let copies = 0

function copyOf(format: number, store: string): string {
  const copy = join(temporary, `copy-${copies++}`)
  cpSync(join(GOLDEN, `format-${format}`, store), copy, { recursive: true })
  return copy
}

/** The first line describes the store, each other line a tree. */
function contentOf(format: number, store: string): Content {
  const text = readFileSync(join(GOLDEN, `format-${format}`, `${store}.jsonl`), 'utf8')
  const [first, ...trees] = text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line))
  return { ...first, trees } as Content
}

function open(folder: string, now: number, readOnly = false): Promise<EmbeddedStore> {
  return openEmbedded({ disk: openNodeDisk(folder, { readOnly }), readOnly, clock: () => now })
}

/** Short printable text as it is, other text as its length and the beginning of its hash. */
function told(bytes: string): unknown {
  if (bytes.length <= 40 && /^[ -~]*$/.test(bytes)) return bytes
  return { bytes: bytes.length, sha256: sha256Hex(Buffer.from(bytes, 'latin1')).slice(0, 16) }
}

/** The hash of every file. */
function fingerprint(folder: string): string[] {
  return readdirSync(folder).map(name => `${name} ${sha256Hex(readFileSync(join(folder, name)))}`)
}

async function compare(store: EmbeddedStore, content: Content): Promise<number> {
  let count = 0
  for (const { scope, tag, entries } of content.trees) {
    const found = await store.scan({ scope, tag })
    const rows = found.map(entry => [
      told(entry.key),
      told(entry.value),
      entry.version,
      entry.time,
      entry.expiresAt,
    ])
    expect(rows, `${scope} ${tag}`).toEqual(entries)
    for (const { key, value } of found) expect((await store.get(scope, tag, key))?.value).toBe(value)
    count += found.length
    if (tag === TAGS.event || tag === TAGS.ledger) {
      let before = ZERO_HASH
      for (const [sequence, { prevHash, hash, time, body }] of found.map(parseLogEntry).entries()) {
        expect(prevHash).toBe(before)
        before = linkHash(before, sequence, time, sha256(body))
        expect(hash).toBe(before)
      }
      const head = await store.get(scope, headTag(tag), HEAD_KEY)
      expect(parseHead(head)).toEqual({ length: found.length, hash: before })
    }
  }
  // The version may be higher, because the engine removes expired entries in a commit of its own.
  expect(store.stats().version).toBeGreaterThanOrEqual(content.version)
  expect(store.recovery).toBeUndefined()
  await store.verify()
  return count
}

const formats = readdirSync(GOLDEN)
  .map(name => /^format-(\d+)$/.exec(name)?.[1])
  .filter(digits => digits !== undefined)
  .map(Number)

describe('golden files', () => {
  it('exist for every format up to the current one, and are small', () => {
    expect(formats).toEqual(Array.from({ length: FORMAT }, (_, i) => i + 1))
    for (const format of formats) {
      // The compressed size, as in git.
      const bytes = readdirSync(join(GOLDEN, `format-${format}`), { recursive: true, withFileTypes: true })
        .filter(entry => entry.isFile())
        .reduce((sum, entry) => sum + deflateSync(readFileSync(join(entry.parentPath, entry.name))).length, 0)
      console.log(`format ${format}: ${bytes} bytes, compressed`)
      expect(bytes).toBeLessThan(BYTES_MAX)
    }
  })

  for (const format of formats.filter(each => each === FORMAT)) {
    for (const name of STORES) {
      it(`format ${format}, ${name}: has the same data when opened read-only, written to, and reopened`, async () => {
        const content = contentOf(format, name)
        const folder = copyOf(format, name)
        const reader = await open(folder, content.now, true)
        const entries = await compare(reader, content)
        await reader.close()
        const store = await open(folder, content.now)
        await compare(store, content)
        const { scope } = content.trees[0]
        const encoded = await store.get(scope, TAGS.kv, 'encoded')
        const decoded = decodeValue(encoded?.value ?? '')
        expect(decoded).toStrictEqual({ z: Uint8Array.from({ length: 256 }, (_, i) => i), a: [1n, 'é', -0] })
        expect(Object.keys(decoded as object)).toEqual(['z', 'a'])
        // The dedupe key of a stored event is still known.
        const body = 'event 3 anew'
        const dedupe = { key: 'once-3', memo: 'ignored' }
        const append = { op: 'append', scope, tag: TAGS.event, body, bodyHash: sha256(body), dedupe } as const
        const outcome = await store.commit({ operations: [append] })
        expect(outcome).toMatchObject({ appended: [{ sequence: 3, duplicate: true, memo: 'memo 3' }] })
        await store.close()
        const again = await open(folder, content.now)
        await compare(again, content)
        await again.close()
        console.log(`format ${format}, ${name}: ${entries} entries at version ${content.version}`)
        expect(entries).toBeGreaterThan(100)
      })
    }
  }
})

describe('R8: a store of an older format', () => {
  for (const format of formats.filter(each => each < FORMAT)) {
    for (const name of STORES) {
      it(`format ${format}, ${name}: is refused as FORMAT_TOO_OLD with advice, and not changed`, async () => {
        const { now } = contentOf(format, name)
        const whole = copyOf(format, name)
        // A store that was killed before its first checkpoint has no manifest.
        const logOnly = copyOf(format, name)
        for (const file of readdirSync(logOnly)) if (!file.startsWith('wal')) rmSync(join(logOnly, file))
        renameSync(join(logOnly, readdirSync(logOnly)[0]), join(logOnly, 'wal-00000001'))
        for (const folder of [whole, logOnly]) {
          const before = fingerprint(folder)
          for (const readOnly of [false, true]) {
            await expect(open(folder, now, readOnly)).rejects.toMatchObject({
              code: 'FORMAT_TOO_OLD',
              message: expect.stringContaining('export'),
              details: { format, supported: FORMAT },
            })
          }
          expect(fingerprint(folder)).toEqual(before)
        }
      })
    }
  }
})

describe('failure matrix, a newer file format', () => {
  for (const kind of ['manifest', 'data', 'wal']) {
    it(`is refused with the name of the ${kind} file, and nothing is changed`, async () => {
      const content = contentOf(FORMAT, 'killed')
      const original = copyOf(FORMAT, 'killed')
      // Only the files that the newest checkpoint or the log after it need are read.
      const name = readdirSync(original)
        .filter(each => each.startsWith(`${kind}-`))
        .at(-1) as string
      const path = join(original, name)
      writeFileSync(path, inFormat(FORMAT + 1, readFileSync(path)))
      const before = fingerprint(original)
      for (const readOnly of [false, true]) {
        await expect(open(original, content.now, readOnly)).rejects.toMatchObject({
          name: 'AnnalsError',
          code: 'FORMAT_TOO_NEW',
          message: expect.stringContaining(`${name} has format ${FORMAT + 1}`),
          details: { file: name, format: FORMAT + 1, supported: FORMAT },
        })
      }
      expect(fingerprint(original)).toEqual(before)
    })
  }
})
