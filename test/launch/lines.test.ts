import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { AnnalsError } from '../../src/core/errors.ts'
import type { JsonSchema } from '../../src/core/schema.ts'
import { openNodeDisk } from '../../src/disk/node-disk.ts'
import { open } from '../../src/index.ts'
import { lineOf } from '../../src/launch/chain.ts'
import { CONTRACTS } from '../../src/launch/contracts.ts'
import { DOCS_STATES } from '../../src/launch/docs/pipeline.ts'
import { DatabaseLog } from '../../src/launch/log-database.ts'
import { FileLog } from '../../src/launch/log-file.ts'
import { replayBytes } from '../../src/launch/replay.ts'
import { gateway } from './small-launch.ts'
import { newJournal, writeFullLog } from './written-log.ts'

const root = mkdtempSync(join(tmpdir(), 'annals-launch-log-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))
const newFolder = (): string => mkdtempSync(join(root, 'run-'))
const MISSING = { kind: 'missing' } as const
const CONTRACT_FILES = new URL('../../docs/contracts/', import.meta.url)

describe('durability', () => {
  test('N2: an event counts once it is durable, N5: its snapshot is written after it', async () => {
    const { journal, log, snapshots } = newJournal()
    const story: string[] = []
    const synced = gateway()
    log.append = async line => {
      story.push(`written ${(JSON.parse(line) as { type: string }).type}`)
      await synced.passed
      story.push('durable')
    }
    const created = { run_id: 'run-1', launch: 'x', launch_version: '1', run_config: {} }
    const appended = journal
      .append('RUN_CREATED', created)
      .then(() => story.push(`${snapshots.length} snapshot`))
    await new Promise(setImmediate)
    expect(story).toEqual(['written RUN_CREATED'])
    expect(snapshots).toEqual([])
    synced.open()
    await appended
    expect(story).toEqual(['written RUN_CREATED', 'durable', '1 snapshot'])
  })

  test('N2: after a failed write nothing more is written, and every append rejects', async () => {
    const { journal, log, snapshots } = newJournal()
    const created = { run_id: 'run-1', launch: 'x', launch_version: '1', run_config: {} }
    await journal.append('RUN_CREATED', created)
    const full = new AnnalsError('DISK_FULL', 'no room')
    log.append = () => Promise.reject(full)
    const both = [journal.append('RUN_PAUSED', {}), journal.append('ISSUE_RESOLVED', { issue_id: 'x' })]
    const outcomes = await Promise.allSettled(both)
    expect(outcomes[0]).toMatchObject({ status: 'rejected', reason: full })
    await expect(journal.append('RUN_PAUSED', {})).rejects.toBe(full)
    expect(journal.failure).toBe(full)
    expect(snapshots).toHaveLength(1)
  })
})

describe('contracts', () => {
  test.each(Object.entries(CONTRACTS))(
    'N3: docs/contracts/%s.schema.json is the schema that the code validates with (npm run contracts)',
    (name, schema) => {
      const text = readFileSync(new URL(`${name}.schema.json`, CONTRACT_FILES), 'utf8')
      expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(schema)))
    },
  )

  test('N3: the schemas use only keywords that are checked', () => {
    const known = new Set([
      ...['$schema', '$id', '$defs', '$ref', 'title', 'description', 'type', 'const', 'enum', 'pattern'],
      ...['minLength', 'minimum', 'properties', 'required', 'additionalProperties', 'items', 'allOf'],
      ...['if', 'then'],
    ])
    const check = (schema: JsonSchema): void => {
      for (const keyword of Object.keys(schema)) expect(known).toContain(keyword)
      const { $defs = {}, properties = {}, items, allOf = [], additionalProperties } = schema
      for (const part of [...Object.values($defs), ...Object.values(properties), ...allOf]) check(part)
      for (const part of [items, schema.if, schema.then]) if (part !== undefined) check(part)
      if (typeof additionalProperties === 'object') check(additionalProperties)
    }
    for (const contract of Object.values(CONTRACTS)) check(contract)
  })
})

describe('logs', () => {
  test('ND4: a torn last line is moved to a file beside the log', async () => {
    const { log } = await writeFullLog()
    const folder = newFolder()
    const path = join(folder, 'events.ndjson')
    for (const tear of [1, 40]) {
      writeFileSync(path, `${log.text}${log.text.slice(0, tear)}`)
      const file = await FileLog.open(openNodeDisk(folder))
      const replayed = replayBytes(await file.read(), 'run-1', DOCS_STATES, MISSING)
      expect(replayed.tornBytes).toBe(tear)
      await file.cut(replayed.seal.bytes)
      await file.append('next\n')
      await file.close()
      expect(readFileSync(path, 'utf8')).toBe(`${log.text}next\n`)
    }
    expect(readFileSync(join(folder, 'events.ndjson.torn'), 'utf8')).toBe(
      log.text.slice(0, 1) + log.text.slice(0, 40),
    )
  })

  test('N2: concurrent appends keep their order, and a database log has the bytes of the file', async () => {
    const { events } = await writeFullLog()
    const folder = newFolder()
    const file = await FileLog.open(openNodeDisk(folder))
    await Promise.all(events.map(event => file.append(lineOf(event))))
    await file.close()
    const db = await open({ memory: true })
    const database = new DatabaseLog(db.events, 'run-1')
    await Promise.all(events.map(event => database.append(lineOf(event))))
    const text = events.map(lineOf).join('')
    expect(readFileSync(join(folder, 'events.ndjson'), 'utf8')).toBe(text)
    expect((await database.read()).toString()).toBe(text)
    expect((await db.events.verifyChain('run-1')).isValid).toBe(true)
    await database.close()
    await db.close()
  })
})
