import { AnnalsError } from '../../src/core/errors.ts'
import { invariant } from '../../src/core/invariant.ts'
import { type Disk, type DiskFile, folderGone } from '../../src/disk/disk.ts'
import { Random } from '../../src/testing/random.ts'
import {
  type DiskCall,
  type DiskCallKind,
  type DiskFault,
  DiskFaults,
  type FaultError,
  ioError,
} from './disk-faults.ts'
import { folderHandle } from './folder-handle.ts'
import { PagedBytes } from './paged-bytes.ts'
import { ExhaustiveFate, type Fate, KEEP_ALL, RandomFate, type Tear } from './power-cut.ts'
import { SimulatedFile } from './simulated-file.ts'
import { isFolderEntry, SimulatedNames } from './simulated-names.ts'

export interface SimulatedDiskOptions {
  /** The unit that the device writes completely or not at all, unless a power cut tears it. */
  readonly sectorBytes?: number
  readonly capacityBytes?: number
  /** Decides when a `…Later` call ends. */
  readonly later?: (task: () => void) => void
  /** Determines what a failed call leaves behind, and the ids of new stores. */
  readonly seed?: number
}

/**
 * A simulated disk in memory: deterministic, and as unreliable as a real disk may be. Writes are visible at once, but
 * durable only after a sync. `afterProcessCrash` and `afterPowerCut` return the disk that the next process would find.
 * They are cheap enough for millions of images. An image is a disk too, and can crash again.
 */
export class SimulatedDisk implements Disk {
  capacityBytes: number
  /** Called when each call starts and when it ends. Images may be taken here. */
  onCall: ((call: DiskCall) => void) | undefined
  /** The number of calls so far. */
  calls = 0
  /** The number of open files, which shows files that were not closed. */
  openFiles = 0

  readonly #sectorBytes: number
  readonly #later: (task: () => void) => void
  readonly #seed: number
  readonly #faults = new DiskFaults()
  #files: SimulatedFile[] = []
  #names = new SimulatedNames()
  /** The holder of the lock of each folder. */
  readonly #holders = new Map<string, object>()
  /** The number of times that the folder was replaced. */
  #era = 0

  constructor(options: SimulatedDiskOptions = {}) {
    this.#sectorBytes = options.sectorBytes ?? 512
    this.capacityBytes = options.capacityBytes ?? Number.POSITIVE_INFINITY
    this.#later = options.later ?? queueMicrotask
    this.#seed = options.seed ?? 0
  }

  /** Creates a disk with these files, all durable. */
  static of(files: Readonly<Record<string, Uint8Array>>, options: SimulatedDiskOptions = {}): SimulatedDisk {
    const disk = new SimulatedDisk(options)
    const names = new Map<string, number>()
    for (const [name, bytes] of Object.entries(files)) {
      names.set(name, disk.#files.length)
      disk.#files.push(disk.#newFile(name, PagedBytes.of(bytes)))
    }
    disk.#names = SimulatedNames.of(names)
    return disk
  }

  // —— the disk ——

  async lock(): Promise<void> {
    this.#takeLock(this, '')
  }

  /** Opens the folder like another process. Unlike the disk itself, the handle can't be used after it is closed. */
  handle(): Disk {
    return this.folder('')
  }

  folder(path: string): Disk {
    if (!this.#names.isFolder(path)) throw ioError('ENOENT', 'open', path)
    const era = this.#era
    return folderHandle(this, path, {
      lock: holder => this.#takeLock(holder, path),
      release: holder => this.#releaseLock(holder, path),
      check: () => {
        if (era !== this.#era) throw folderGone('simulated')
      },
    })
  }

  check(): void {}

  list(folder = ''): string[] {
    return this.#list(folder, 'files')
  }

  folders(folder = ''): string[] {
    return this.#list(folder, 'folders')
  }

  open(name: string, mode: 'read' | 'write' | 'create'): DiskFile {
    return this.#call(mode === 'create' ? 'create' : 'open', name, 0, 0, fault => {
      if (fault) throw ioError(fault, 'open', name)
      let file = this.#find(name)
      if (mode === 'create') {
        if (this.#names.has(name)) throw ioError('EEXIST', 'open', name)
        this.#names.set(name, this.#files.length)
        file = this.#newFile(name, PagedBytes.empty())
        this.#files.push(file)
      }
      if (!file) throw ioError('ENOENT', 'open', name)
      return this.#handleOf(file, mode !== 'read')
    })
  }

  rename(from: string, to: string): void {
    this.#call('rename', to, 0, 0, fault => {
      if (fault) throw ioError(fault, 'rename', to)
      this.#names.rename(from, to)
    })
  }

  remove(name: string): void {
    this.#call('remove', name, 0, 0, fault => this.#remove(name, fault))
  }

  async removeLater(name: string): Promise<void> {
    await this.#callLater('remove', name, 0, 0, () => fault => this.#remove(name, fault))
  }

  makeFolder(name: string): void {
    this.#call('makeFolder', name, 0, 0, fault => {
      if (fault) throw ioError(fault, 'makeFolder', name)
      this.#names.makeFolder(name)
    })
  }

  removeFolder(name: string): void {
    this.#call('removeFolder', name, 0, 0, fault => {
      if (fault) throw ioError(fault, 'removeFolder', name)
      this.#names.removeFolder(name)
    })
  }

  syncFolder(folder = ''): void {
    this.#call('syncFolder', folder, 0, 0, (fault, index) => {
      this.#names.sync(folder, fault ? this.#fateOfFailure(index) : KEEP_ALL)
      if (fault) throw ioError(fault, 'syncFolder', folder)
      // A removed file stays usable for handles that have it open, but the disk no longer needs it.
      const kept = this.#names.renumbered(this.#files.length)
      if (kept !== undefined) this.#files = kept.map(file => this.#files[file])
    })
  }

  close(): void {
    this.#releaseLock(this, '')
  }

  // —— crashes ——

  /**
   * Kills the process. All writes are kept, synced or not. A pending `writeLater` has written nothing, or a random part
   * with `random`.
   */
  afterProcessCrash(random?: Random): SimulatedDisk {
    const image = this.#newImage()
    image.#names = this.#names.copy()
    const arrived = (bytes: number): number => random?.below(bytes + 1) ?? 0
    image.#files = this.#files.map(file => file.afterProcessCrash(arrived))
    return image
  }

  /** Cuts the power. Any part of the unsynced changes may be lost, torn or kept. */
  afterPowerCut(random: Random, tear: Tear = 'mixed'): SimulatedDisk {
    return this.#cut(new RandomFate(random, tear))
  }

  /** The maximum number of decisions for a power cut at this moment. */
  get undecided(): number {
    let decisions = this.#names.changes
    for (const index of this.#names.possibleFiles()) decisions += this.#files[index].undecided
    return decisions
  }

  /** All images that a power cut could leave, if there are at most `imagesMax`; otherwise `imagesMax` random ones. */
  *powerCuts(random: Random, imagesMax: number, tear: Tear = 'mixed'): Generator<SimulatedDisk> {
    if (2 ** this.undecided <= imagesMax) {
      const fate = new ExhaustiveFate()
      do yield this.#cut(fate)
      while (fate.next())
    } else {
      for (let i = 0; i < imagesMax; i++) yield this.afterPowerCut(random, tear)
    }
  }

  // —— faults ——

  /** Replaces the folder with an empty one. Later writes to open files have no effect on the new folder. */
  replaceFolder(): void {
    this.#era++
    this.#names = new SimulatedNames()
    this.#holders.clear()
  }

  fail(fault: DiskFault): void {
    this.#faults.add(fault)
  }

  /** Removes all faults. Their effects stay. */
  heal(): void {
    this.#faults.clear()
  }

  /** Flips bits of a byte on the device, by default the lowest one. */
  flip(name: string, offset: number, mask = 1): void {
    const file = this.#existing(name)
    invariant(offset < file.content.size, 'a byte to flip is in the file')
    file.damage(bytes => {
      const byte = new Uint8Array(1)
      if (bytes.read(byte, offset) === 0) return
      byte[0] ^= mask
      bytes.write(byte, offset)
    })
  }

  /** Truncates a file on the device. */
  cut(name: string, size: number): void {
    this.#existing(name).damage(bytes => bytes.truncate(Math.min(size, bytes.size)))
  }

  // —— inspection, which does not count as a disk call ——

  files(): { readonly name: string; readonly size: number }[] {
    return this.#names.paths().map(name => ({ name, size: this.#existing(name).content.size }))
  }

  /** The content that reads see now. It can be stored as a golden file or passed to `of`. */
  toFiles(): Record<string, Buffer> {
    const files: Record<string, Buffer> = {}
    for (const { name } of this.files()) files[name] = this.#existing(name).content.toBuffer()
    return files
  }

  // —— files ——

  #handleOf(file: SimulatedFile, writable: boolean): DiskFile {
    const disk = this
    let open = true
    const check = (): void => invariant(open, 'the file is open')
    const checkWritable = (kind: DiskCallKind): void => {
      check()
      if (!writable) throw ioError('EBADF', kind, file.name)
    }
    this.openFiles++
    return {
      size() {
        check()
        return disk.#call('size', file.name, 0, 0, fault => {
          if (fault) throw ioError(fault, 'size', file.name)
          return file.content.size
        })
      },
      read(buffer, position) {
        check()
        return disk.#call('read', file.name, position, buffer.length, fault => {
          if (fault) throw ioError(fault, 'read', file.name)
          return file.content.read(buffer, position)
        })
      },
      write(buffer, position) {
        checkWritable('write')
        return disk.#call('write', file.name, position, buffer.length, (fault, index) =>
          disk.#write(file, buffer, position, fault, index),
        )
      },
      writeLater(buffer, position) {
        check()
        if (!writable) return Promise.reject(ioError('EBADF', 'writeLater', file.name))
        return disk.#callLater('writeLater', file.name, position, buffer.length, () => {
          const end = file.beginWrite(buffer, position)
          return (fault, index) => {
            end()
            return disk.#write(file, buffer, position, fault, index)
          }
        })
      },
      truncate(size) {
        checkWritable('truncate')
        disk.#call('truncate', file.name, size, 0, fault => {
          if (fault) throw ioError(fault, 'truncate', file.name)
          if (size - file.content.size > disk.#freeBytes()) throw ioError('ENOSPC', 'truncate', file.name)
          file.truncate(size)
        })
      },
      sync() {
        check()
        disk.#call('sync', file.name, 0, 0, (fault, index) =>
          disk.#sync(file, file.changesMade, fault, index),
        )
      },
      syncLater() {
        check()
        return disk.#callLater('syncLater', file.name, 0, 0, () => {
          // A sync covers only the changes that were made before it started.
          const upTo = file.changesMade
          return (fault, index) => disk.#sync(file, upTo, fault, index)
        })
      },
      close() {
        if (open) disk.openFiles--
        open = false
      },
    }
  }

  #write(
    file: SimulatedFile,
    buffer: Uint8Array,
    position: number,
    fault: FaultError | undefined,
    index: number,
  ): number {
    let count = buffer.length
    if (fault === 'short') count = Math.floor(count / 2)
    if (fault === 'ENOSPC') count = 0
    // A failed write may have written some of its bytes.
    if (fault === 'EIO') count = this.#randomOf(index).below(count + 1)
    if (this.capacityBytes !== Number.POSITIVE_INFINITY) {
      const room =
        Math.max(0, file.content.size - position) +
        this.#freeBytes() -
        Math.max(0, position - file.content.size)
      count = Math.max(0, Math.min(count, room))
    }
    file.write(count === buffer.length ? buffer : buffer.subarray(0, count), position)
    if (fault === 'EIO' || fault === 'ENOSPC') throw ioError(fault, 'write', file.name)
    if (fault === undefined && count === 0 && buffer.length > 0) throw ioError('ENOSPC', 'write', file.name)
    return count
  }

  #sync(file: SimulatedFile, upTo: number, fault: FaultError | undefined, index: number): void {
    if (fault === undefined) {
      file.sync(upTo)
      return
    }
    file.failSync(upTo, this.#fateOfFailure(index), this.#randomOf(index).chance(0.5))
    throw ioError(fault, 'sync', file.name)
  }

  #remove(name: string, fault: FaultError | undefined): void {
    if (fault) throw ioError(fault, 'remove', name)
    this.#names.remove(name)
  }

  #freeBytes(): number {
    if (this.capacityBytes === Number.POSITIVE_INFINITY) return Number.POSITIVE_INFINITY
    let used = 0
    for (const index of this.#names.seenFiles()) used += this.#files[index].content.size
    return Math.max(0, this.capacityBytes - used)
  }

  // —— the folder ——

  #list(folder: string, kind: 'files' | 'folders'): string[] {
    return this.#call('list', folder, 0, 0, fault => {
      if (fault) throw ioError(fault, 'list', folder)
      return this.#names.namesIn(folder, kind)
    })
  }

  #newFile(name: string, content: PagedBytes): SimulatedFile {
    return new SimulatedFile(name, content, this.#sectorBytes)
  }

  #find(name: string): SimulatedFile | undefined {
    const index = this.#names.fileAt(name)
    return index === undefined ? undefined : this.#files[index]
  }

  #existing(name: string): SimulatedFile {
    const file = this.#find(name)
    invariant(file, `there is a file ${name}`)
    return file
  }

  #takeLock(holder: object, folder: string): void {
    this.#call('lock', folder, 0, 0, fault => {
      if (fault) throw ioError(fault, 'lock')
      if (this.#holders.has(folder))
        throw new AnnalsError('LOCKED', 'the simulated folder is open already', { path: 'simulated' })
      this.#holders.set(folder, holder)
    })
  }

  #releaseLock(holder: object, folder: string): void {
    if (this.#holders.get(folder) === holder) this.#holders.delete(folder)
  }

  // —— calls ——

  #call<T>(
    kind: DiskCallKind,
    file: string,
    position: number,
    bytes: number,
    effect: (fault: FaultError | undefined, index: number) => T,
  ): T {
    const index = this.calls++
    if (this.onCall === undefined && this.#faults.none) return effect(undefined, index)
    const call: DiskCall = { index, kind, file, position, bytes, phase: 'start', failed: false }
    this.onCall?.(call)
    try {
      return effect(this.#faults.take(call), index)
    } catch (error) {
      call.failed = true
      throw error
    } finally {
      call.phase = 'end'
      this.onCall?.(call)
    }
  }

  /**
   * Runs `start` now, and the function that it returns when the scheduler decides. The fault is chosen now, by the
   * number of the call.
   */
  #callLater<T>(
    kind: DiskCallKind,
    file: string,
    position: number,
    bytes: number,
    start: () => (fault: FaultError | undefined, index: number) => T,
  ): Promise<T> {
    const index = this.calls++
    const call: DiskCall = { index, kind, file, position, bytes, phase: 'start', failed: false }
    this.onCall?.(call)
    const fault = this.#faults.take(call)
    const effect = start()
    return new Promise((resolve, reject) => {
      this.#later(() => {
        let settle: () => void
        try {
          const value = effect(fault, index)
          settle = () => resolve(value)
        } catch (error) {
          call.failed = true
          settle = () => reject(error)
        }
        call.phase = 'end'
        this.onCall?.(call)
        settle()
      })
    })
  }

  /** The id for a store that is created on this disk. It depends on the seed and on the number of calls so far. */
  newStoreId(): string {
    return Buffer.from(this.#randomOf(this.calls).bytes(16), 'latin1').toString('hex')
  }

  // —— images ——

  #newImage(): SimulatedDisk {
    return new SimulatedDisk({
      sectorBytes: this.#sectorBytes,
      capacityBytes: this.capacityBytes,
      later: this.#later,
      seed: this.#seed,
    })
  }

  #cut(fate: Fate): SimulatedDisk {
    const image = this.#newImage()
    const names = new Map<string, number>()
    for (const [name, index] of this.#names.afterPowerCut(fate)) {
      names.set(name, isFolderEntry(index) ? index : image.#files.length)
      if (!isFolderEntry(index)) image.#files.push(this.#files[index].afterPowerCut(fate))
    }
    image.#names = new SimulatedNames(names)
    return image
  }

  #randomOf(call: number): Random {
    return new Random(Math.imul(this.#seed ^ 0x5bd1e995, 0x9e3779b1) + call)
  }

  #fateOfFailure(call: number): Fate {
    return new RandomFate(this.#randomOf(call), 'none')
  }
}
