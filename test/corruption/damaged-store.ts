import { AnnalsError } from '../../src/core/errors.ts'
import { sha256 } from '../../src/core/hash.ts'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { LEAF_ENTRIES_MAX } from '../../src/embedded/node.ts'
import { type EmbeddedOptions, openEmbedded } from '../../src/embedded/open.ts'
import { dedupeTag, TAGS } from '../../src/engine/keys.ts'
import type { Operation } from '../../src/engine/storage.ts'
import { Random } from '../../src/testing/random.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'

/** Small stores on the simulated disk with their expected content at each version, and the check of a damaged store. */

export type Files = Readonly<Record<string, Uint8Array>>

const SCOPES = ['t:a:g:one', 't:a:g:two'] as const
const TREES = SCOPES.flatMap(scope =>
  [TAGS.kv, TAGS.event, dedupeTag(TAGS.event)].map(tag => ({ scope, tag })),
)

function optionsOf(disk: SimulatedDisk, more: EmbeddedOptions = {}): EmbeddedOptions {
  let tick = 0
  return {
    disk: disk.handle(),
    durability: 'durable',
    clock: () => 1_750_000_000_000,
    scheduler: { soon: queueMicrotask, later: queueMicrotask, now: () => (tick += 0.7) },
    // So large that checkpoints run only when the test asks for them.
    walBytes: 1_000_000,
    prepareBytes: 0,
    fileBytes: 5_000,
    garbageBytes: 2_000,
    warn: () => undefined,
    ...more,
  }
}

export function openOn(disk: SimulatedDisk, more: EmbeddedOptions = {}): Promise<EmbeddedStore> {
  return openEmbedded(optionsOf(disk, more))
}

/** All data of a store: each entry with its version, time and expiry. */
async function dump(store: EmbeddedStore): Promise<string> {
  let text = ''
  for (const { scope, tag } of TREES) {
    text += `[${scope} ${tag}]`
    for (const { key, value, version, time, expiresAt } of await store.scan({ scope, tag })) {
      text += `${key}|${value}|${version}|${time}|${expiresAt};`
    }
  }
  return text
}

/** Reads each entry with `get`, as a reader that knows the keys would. */
async function getAll(store: EmbeddedStore): Promise<number> {
  let count = 0
  for (const { scope, tag } of TREES) {
    for (const entry of await store.scan({ scope, tag })) {
      const got = await store.get(scope, tag, entry.key)
      if (got?.value !== entry.value || got.version !== entry.version) {
        throw new Error(`get and scan differ at ${scope} ${tag} ${entry.key}`)
      }
      count++
    }
  }
  return count
}

function randomOperations(random: Random, commit: number): Operation[] {
  const operations: Operation[] = []
  const count = 1 + random.below(7)
  for (let i = 0; i < count; i++) {
    const scope = random.pick(SCOPES)
    const key = `k${random.below(scope === SCOPES[0] ? FIRST_ENTRIES : 30)}`
    const draw = random.next()
    const value = `${commit}-${'x'.repeat(random.below(8))}`
    if (draw < 0.7) operations.push({ op: 'put', scope, tag: TAGS.kv, key, value })
    else if (draw < 0.8) operations.push({ op: 'put', scope, tag: TAGS.kv, key, value, expiresAt: 2e12 })
    else if (draw < 0.9) operations.push({ op: 'delete', scope, tag: TAGS.kv, key })
    else {
      const dedupe = { key: `d${commit}-${i}`, memo: `m${i}` }
      operations.push({ op: 'append', scope, tag: TAGS.event, body: value, bodyHash: sha256(value), dedupe })
    }
  }
  operations.push({ op: 'put', scope: SCOPES[0], tag: TAGS.kv, key: 'commit', value: String(commit) })
  return operations
}

/** As short as possible, because each of their bytes is damaged many times. */
function firstOperations(): Operation[] {
  return Array.from({ length: FIRST_ENTRIES }, (_, i) => ({
    op: 'put',
    scope: SCOPES[0],
    tag: TAGS.kv,
    key: `k${i}`,
    value: 'x',
  }))
}

export interface BuiltStore {
  readonly name: string
  readonly files: Files
  /** The content of the store after each version. */
  readonly states: readonly string[]
  /** The version of the undamaged store. */
  readonly version: number
  /** The last version that a checkpoint holds. Damage to the log can't lose it. */
  readonly checkpointed: number
  /** The maximum number of commits that one damaged byte may lose: those that no later frame marks as durable. */
  readonly commitsLostMax: number
}

/** More entries than fit in a leaf, so that there is an inner node to damage. */
const FIRST_ENTRIES = LEAF_ENTRIES_MAX + 20
const COMMITS_BEFORE = [16, 8] as const
const COMMITS_AFTER = 8

type Variant = 'closed' | 'not closed' | 'not closed, relaxed' | 'log prepared' | 'in a checkpoint'
export const VARIANTS: readonly Variant[] = [
  'closed',
  'not closed',
  'not closed, relaxed',
  'log prepared',
  'in a checkpoint',
]

/** Builds a store with two checkpoints and more commits in the log. The variant decides how it ends. */
export async function buildStore(variant: Variant, seed: number): Promise<BuiltStore> {
  const random = new Random(seed)
  const disk = new SimulatedDisk()
  const relaxed = variant === 'not closed, relaxed'
  const store = await openOn(disk, { durability: relaxed ? 'relaxed' : 'durable' })
  const states = [await dump(store)]
  const commit = async (operations = randomOperations(random, states.length)): Promise<void> => {
    const outcome = await store.commit({ operations })
    if (outcome.status !== 'committed' || outcome.version !== states.length) throw new Error('unexpected')
    states.push(await dump(store))
  }
  await commit(firstOperations())
  for (const commits of COMMITS_BEFORE) {
    for (let i = 0; i < commits; i++) await commit()
    await store.checkpoint()
  }
  let checkpointed = store.stats().version
  for (let i = 0; i < COMMITS_AFTER; i++) await commit()
  let files: Files = disk.toFiles()
  if (variant === 'closed') {
    checkpointed = store.stats().version
    await store.close()
    files = disk.toFiles()
  } else if (variant === 'log prepared') {
    const last = Object.keys(files)
      .filter(name => name.startsWith('wal'))
      .at(-1) as string
    files = { ...files, [last]: Buffer.concat([files[last], Buffer.alloc(600)]) }
  } else if (variant === 'in a checkpoint') {
    // The files as if the process were killed before it wrote the third manifest, when the log already has a new segment.
    let image: Files | undefined
    disk.onCall = ({ kind, file, phase }) => {
      if (kind === 'write' && file.startsWith('manifest') && phase === 'start') image = disk.toFiles()
    }
    // These commits come while the trees are being written, so they are in a second segment.
    const checkpoint = store.checkpoint()
    for (let i = 0; i < 6; i++) await commit()
    await checkpoint
    disk.onCall = undefined
    if (image === undefined) throw new Error('the checkpoint wrote no manifest')
    files = image
  }
  const found = await openOn(SimulatedDisk.of(files))
  const { version } = found.stats()
  if ((await dump(found)) !== states[version]) throw new Error('the undamaged store is wrong')
  return { name: variant, files, states, version, checkpointed, commitsLostMax: relaxed ? COMMITS_AFTER : 1 }
}

/** Marks the bytes of each file that opening and a full read use. Damage to any of them must be noticed. */
export async function bytesRead(files: Files): Promise<Map<string, Uint8Array>> {
  const disk = SimulatedDisk.of(files)
  const read = new Map(Object.entries(files).map(([name, bytes]) => [name, new Uint8Array(bytes.length)]))
  disk.onCall = ({ kind, file, position, bytes, phase }) => {
    if (kind === 'read' && phase === 'start') read.get(file)?.fill(1, position, position + bytes)
  }
  const store = await openOn(disk)
  await dump(store)
  await store.verify()
  return read
}

/** The allowed results for a damaged store. Any other result fails the test. */
export type Verdict = 'CORRUPT' | 'FORMAT_TOO_NEW' | 'right and reported' | 'right' | 'earlier and reported'

export interface Judgement {
  readonly verdict: Verdict
  /** The version that was found; that of the undamaged store if opening was refused. */
  readonly version: number
}

export interface Thoroughness {
  /** Also reads each key with `get`. */
  readonly gets?: boolean
  /** Also opens the repaired store again, writes to it, closes it and opens it once more. */
  readonly goOn?: boolean
  /** Opens read-only, and checks that no file has changed. */
  readonly readOnly?: boolean
}

/** Opens the files and reads everything. Throws unless the store is refused with a code or shows a state that it once had. */
export async function judge(built: BuiltStore, files: Files, how: Thoroughness = {}): Promise<Judgement> {
  const disk = SimulatedDisk.of(files)
  const verdict = await read(built, disk, how)
  if (how.readOnly === true) assertSameFiles(disk, files)
  const refused = verdict.verdict === 'CORRUPT' || verdict.verdict === 'FORMAT_TOO_NEW'
  // A refused store must not leave files open.
  if (refused && disk.openFiles > 0) throw new Error(`refused, and left ${disk.openFiles} files open`)
  if (how.goOn === true && how.readOnly !== true && !refused)
    await goOn(built, disk.afterProcessCrash(), verdict)
  return verdict
}

function assertSameFiles(disk: SimulatedDisk, files: Files): void {
  const now = disk.toFiles()
  const same =
    Object.keys(now).length === Object.keys(files).length &&
    Object.entries(files).every(([name, bytes]) => now[name]?.equals(bytes))
  if (!same) throw new Error('opened read-only, it changed a file')
}

async function read(built: BuiltStore, disk: SimulatedDisk, how: Thoroughness): Promise<Judgement> {
  let store: EmbeddedStore | undefined
  let text: string
  try {
    store = await openOn(disk, { readOnly: how.readOnly === true })
    text = await dump(store)
    if (how.gets === true) await getAll(store)
    await store.verify()
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    if (error.code !== 'CORRUPT' && error.code !== 'FORMAT_TOO_NEW') throw error
    const { file, offset } = error.details
    if (error.code === 'CORRUPT' && (typeof file !== 'string' || typeof offset !== 'number')) {
      throw new Error(`CORRUPT without file and offset: ${error.message}`)
    }
    await closeDamaged(store)
    return { verdict: error.code, version: built.version }
  }
  const { version } = store.stats()
  if (text !== built.states[version]) throw new Error(`a wrong answer: not what version ${version} held`)
  if (version === built.version) {
    return { verdict: store.recovery === undefined ? 'right' : 'right and reported', version }
  }
  if (store.recovery?.tornTail === undefined) throw new Error(`silently lost all after version ${version}`)
  if (version < built.checkpointed) throw new Error(`lost version ${version + 1}, which a checkpoint held`)
  return { verdict: 'earlier and reported', version }
}

/** A store closes and releases its files even if a read has found damage. */
async function closeDamaged(store: EmbeddedStore | undefined): Promise<void> {
  try {
    await store?.close()
  } catch (error) {
    if (!(error instanceof AnnalsError) || error.code !== 'CORRUPT') throw error
  }
}

/** Checks that a second recovery changes nothing, and that the repaired store works like any other. */
async function goOn(built: BuiltStore, disk: SimulatedDisk, { version }: Judgement): Promise<void> {
  const again = await openOn(disk)
  if (again.stats().version !== version) throw new Error('the second opening found something else')
  if (again.recovery?.tornTail !== undefined) throw new Error('the second opening cut the log again')
  if ((await dump(again)) !== built.states[version])
    throw new Error('the second opening reads something else')
  await again.commit({
    operations: [{ op: 'put', scope: SCOPES[1], tag: TAGS.kv, key: 'new', value: 'new' }],
  })
  const expected = await dump(again)
  await again.close()
  const closed = await openOn(disk)
  if (closed.recovery !== undefined) throw new Error('after a close there is still something to mend')
  if ((await dump(closed)) !== expected) throw new Error('what was written after mending is not there')
  await closed.verify()
  await closed.close()
  if (disk.openFiles > 0) throw new Error(`closed, and left ${disk.openFiles} files open`)
}
