import { AnnalsError } from '../core/errors.ts'
import { runInSlices } from '../core/slices.ts'
import { type Disk, diskFailure, isFull, withOneFolderFailure } from '../disk/disk.ts'
import type { Durability, Recovery } from '../engine/capabilities.ts'
import { Checkpointer } from './checkpointer.ts'
import { Committer } from './committer.ts'
import { createStore, newStoreId, storeIdWithoutManifest } from './creation.ts'
import { DataFiles } from './data-files.ts'
import { EmbeddedStore, type Persistence, type Warn } from './embedded-store.ts'
import { Forest } from './forest.ts'
import { fileId } from './format.ts'
import { FIRST_MANIFEST, type FoundManifests, type Manifest, readManifests } from './manifest.ts'
import type { Node } from './node.ts'
import { decodeAddress } from './node-codec.ts'
import { NodeStore } from './node-store.ts'
import { nodeScheduler, type Scheduler } from './scheduler.ts'
import { verifyForest } from './verification.ts'
import { Wal } from './wal.ts'
import { NO_LOG, type Replayed, replay } from './wal-recovery.ts'

/** Options for `openEmbedded`. */
export interface EmbeddedOptions {
  /** The folder of the store. Without it, the store is in memory. */
  readonly disk?: Disk | undefined
  readonly durability?: Durability | undefined
  /** The cache for clean nodes. Dirty nodes use memory in addition; see `dirtyBytes`. */
  readonly cacheBytes?: number | undefined
  readonly readOnly?: boolean | undefined
  /** Whether opening reads and checks all stored data first. */
  readonly verifyOnOpen?: boolean | undefined
  readonly clock?: (() => number) | undefined
  readonly scheduler?: Scheduler | undefined
  /** Returns the id for a new store; random by default. Simulations replace it. */
  readonly newStoreId?: (() => string) | undefined
  /** A checkpoint begins when the log has this size. Opening after a crash reads that much. */
  readonly walBytes?: number | undefined
  /** How much of the next log segment is filled with zeros in advance; 0 for none. */
  readonly prepareBytes?: number | undefined
  /** A checkpoint begins when dirty nodes have this size. */
  readonly dirtyBytes?: number | undefined
  /** Data files are compacted only if they have more garbage than this. */
  readonly garbageBytes?: number | undefined
  /** The size at which a data file is full. */
  readonly fileBytes?: number | undefined
  /** Receives warnings for the operator; by default they become process warnings. */
  readonly warn?: Warn | undefined
}

const MIB = 1024 * 1024
const CACHE_BYTES_DEFAULT = 64 * MIB
const WAL_BYTES_DEFAULT = 12 * MIB
const DIRTY_BYTES_DEFAULT = 96 * MIB
const GARBAGE_BYTES_DEFAULT = 32 * MIB
const FILE_BYTES_DEFAULT = 64 * MIB

/** Opens a store, and creates it if the folder has none. Recovers the log if the store was not closed. */
export async function openEmbedded(options: EmbeddedOptions = {}): Promise<EmbeddedStore> {
  if (options.disk === undefined) return openInMemory(options)
  const disk = withOneFolderFailure(options.disk)
  try {
    await lock(disk)
    return await openOnDisk(disk, options)
  } catch (error) {
    disk.close()
    throw diskFailure(error, 'cannot open the store')
  }
}

/** Adds the store's id to a `LOCKED` error, so that the caller can find the server that has the store open. */
async function lock(disk: Disk): Promise<void> {
  try {
    await disk.lock()
  } catch (error) {
    if (!(error instanceof AnnalsError) || error.code !== 'LOCKED') throw error
    const storeId = storeIdUnlocked(disk)
    throw storeId === undefined
      ? error
      : new AnnalsError('LOCKED', error.message, { ...error.details, storeId }, error.cause)
  }
}

/** Reads the store's id without the lock. That is safe: the id never changes, and one manifest is always intact. */
function storeIdUnlocked(disk: Disk): string | undefined {
  try {
    return readManifests(disk, false).storeId
  } catch (error) {
    // The caller reports `LOCKED`, which matters more than an error while another process writes the files.
    if (error instanceof AnnalsError || (error as NodeJS.ErrnoException).code !== undefined) return undefined
    throw error
  }
}

function openInMemory(options: EmbeddedOptions): EmbeddedStore {
  const nodes = new NodeStore(undefined, Number.POSITIVE_INFINITY)
  const forest = new Forest(nodes, undefined, undefined, options.cacheBytes ?? CACHE_BYTES_DEFAULT)
  return assemble(options, forest, { version: 0, time: 0 }, undefined, undefined)
}

/** Opens the store of a locked folder: the state of the newest valid manifest, plus the log after it. */
async function openOnDisk(disk: Disk, options: EmbeddedOptions): Promise<EmbeddedStore> {
  const readOnly = options.readOnly === true
  const found = await findStore(disk, readOnly, options.newStoreId ?? newStoreId)
  const { storeId, current, previous, origin } = found
  const data = new DataFiles(disk, storeId, readOnly, options.fileBytes ?? FILE_BYTES_DEFAULT)
  try {
    data.adopt(current?.files ?? [], nextDataFile(disk, current?.nextFile ?? 1))
    const cacheBytes = options.cacheBytes ?? CACHE_BYTES_DEFAULT
    const nodes = new NodeStore(data, cacheBytes)
    const { walSegment: segment, version, time, walCrc: crc } = current ?? FIRST_MANIFEST
    const log = { storeId, segment, version, time, crc, readOnly }
    const replayed = origin === 'missing' ? NO_LOG : await runInSlices(replay(disk, log))
    const forest = new Forest(nodes, rootOf(current), replayed.tail, cacheBytes)
    if (options.verifyOnOpen === true) await runInSlices(verifyForest(forest, data.uses))
    if (!readOnly) disk.syncFolder()
    const recovery = report(replayed, found.damaged, options.warn ?? processWarning)
    const durable = (options.durability ?? 'durable') === 'durable'
    const walBytes = options.walBytes ?? WAL_BYTES_DEFAULT
    const wal = new Wal(disk, {
      storeId,
      segment: replayed.lastSegment,
      nextSegment: replayed.nextSegment,
      crc: replayed.crc,
      durable,
      prepareBytes: options.prepareBytes ?? walBytes,
    })
    wal.tailBytes = replayed.tailBytes
    const leansOnLog = replayed.tailBytes > 0 || replayed.segments > 1
    const persist = (committer: Committer): Persistence => ({
      disk,
      storeId,
      data,
      wal,
      walBytes,
      dirtyBytes: options.dirtyBytes ?? DIRTY_BYTES_DEFAULT,
      needsCheckpoint: leansOnLog || origin === 'missing',
      checkpointer: new Checkpointer({
        disk,
        storeId,
        forest,
        data,
        wal,
        committer,
        current,
        previous,
        origin,
        leansOnLog,
        scheduler: options.scheduler ?? nodeScheduler,
        garbageBytes: options.garbageBytes ?? GARBAGE_BYTES_DEFAULT,
      }),
    })
    return assemble(options, forest, replayed, { wal, persist }, recovery)
  } catch (error) {
    data.close()
    throw error
  }
}

interface FoundStore extends FoundManifests {
  readonly storeId: string
  readonly origin: 'found' | 'created' | 'missing'
}

/** Reads the manifests, and creates the store if there is none. If the disk is full, the first commit tries again. */
async function findStore(disk: Disk, readOnly: boolean, newId: () => string): Promise<FoundStore> {
  const found = readManifests(disk, !readOnly)
  const known = found.storeId ?? storeIdWithoutManifest(disk)
  if (known !== undefined) return { ...found, storeId: known, origin: 'found' }
  const missing: FoundStore = { ...found, storeId: newId(), origin: 'missing' }
  if (readOnly) return missing
  try {
    await createStore(disk, missing.storeId)
    return { ...missing, current: FIRST_MANIFEST, origin: 'created' }
  } catch (error) {
    if (isFull(error)) return missing
    throw error
  }
}

function assemble(
  options: EmbeddedOptions,
  forest: Forest,
  { version, time }: { readonly version: number; readonly time: number },
  onDisk: { readonly wal: Wal; readonly persist: (committer: Committer) => Persistence } | undefined,
  recovery: Recovery | undefined,
): EmbeddedStore {
  const scheduler = options.scheduler ?? nodeScheduler
  const durability = options.durability ?? 'durable'
  const committer = new Committer({
    forest,
    wal: onDisk?.wal,
    durable: durability === 'durable',
    version,
    time,
    clock: options.clock ?? Date.now,
    scheduler,
    applied: trees => store.applied(trees),
  })
  const persistence = onDisk?.persist(committer)
  const readOnly = options.readOnly === true
  const warn = options.warn ?? processWarning
  const store = new EmbeddedStore({
    forest,
    committer,
    persistence,
    durability,
    readOnly,
    recovery,
    warn,
    scheduler,
  })
  return store
}

function rootOf(manifest: Manifest | undefined): Node | undefined {
  if (manifest === undefined || manifest.directory === '') return undefined
  return decodeAddress(Buffer.from(manifest.directory, 'hex').latin1Slice())
}

/** The number for the next data file, above those of files that a crash left behind. */
function nextDataFile(disk: Disk, next: number): number {
  const ids = disk.list().map(name => fileId('D', name) ?? 0)
  return Math.max(next, ...ids.map(id => id + 1))
}

function report(
  { torn, stray }: Replayed,
  damagedManifests: readonly string[],
  warn: Warn,
): Recovery | undefined {
  if (torn === undefined && stray.length === 0 && damagedManifests.length === 0) return undefined
  const recovery: Recovery = {
    ...(torn === undefined ? {} : { tornTail: torn }),
    damagedManifests,
    strayBytes: stray,
  }
  warn(`opening found damage and recovered from it: ${JSON.stringify(recovery)}`, 'RECOVERED')
  return recovery
}

const processWarning: Warn = (message, code) => process.emitWarning(message, { type: 'AnnalsWarning', code })
