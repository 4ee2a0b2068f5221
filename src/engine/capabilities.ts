import type { ErrorCode } from '../core/errors.ts'

/**
 * The optional features of an engine, beyond the operations of the port. Annals
 * tests whether a member is present, never which engine it runs on.
 */
export interface Capabilities {
  /** The kind of the engine. If absent, Annals reports `{ kind: 'other', durability: 'durable' }`. */
  readonly engine?: EngineInfo
  /** True if the engine refuses every write with `READ_ONLY`. Annals then starts no background work that writes. */
  readonly readOnly?: boolean
  /** The damage that opening repaired or ignored; undefined if there was none. */
  readonly recovery?: Recovery | undefined
  /** Moves everything committed so far out of the engine's log, so that the next opening need not replay it. */
  checkpoint?(): Promise<void>
  /** Copies everything committed so far into an empty folder, which is created if missing. Reads and writes continue. */
  backup?(folder: string): Promise<void>
  /** Rejects with the reason if no commit can succeed now. Changes nothing that a reader could see. */
  checkWritable?(): Promise<void>
  /** Returns figures for monitoring, as far as the engine has them. Works on a closed engine too. */
  stats?(): Partial<StorageStats>
}

/** The kind of a store's engine, and what its commits survive. */
export interface EngineInfo {
  /** `embedded`, `memory` or `postgres` for the engines of this package. */
  readonly kind: string
  /** What an acknowledged commit survives. */
  readonly durability: Durability
}

/**
 * What an acknowledged commit survives. `durable`: a power cut, because the
 * commit is on the device before the call returns. `relaxed`: the death of the
 * process, because the commit was handed to the operating system before the
 * call returns. A power cut may then lose the newest commits, back to the last
 * checkpoint at most. The loss is always a suffix, so the store opens in an
 * earlier state, never in a mixed one.
 */
export type Durability = 'durable' | 'relaxed'

/** The damage that opening a store repaired or ignored. */
export interface Recovery {
  /** The incomplete end of the log, which was cut off. It held no commit that was acknowledged as durable. */
  readonly tornTail?: TornTail
  /** Manifests that could not be read. The store was recovered from the other manifest and the log. */
  readonly damagedManifests: readonly string[]
  /** Bytes in the log that should be zero and are not. They belong to no commit. */
  readonly strayBytes: readonly { readonly file: string; readonly offset: number }[]
}

/** The incomplete end of a log: a write that never finished, or was never synced. */
export interface TornTail {
  /** The log segment. */
  readonly file: string
  /** Where in the file the incomplete part begins. */
  readonly offset: number
  /** How many bytes were cut off, in this segment and the later ones. */
  readonly bytes: number
}

/** Identifies a folder of this machine, whatever path leads to it. Both numbers are decimal because they may exceed 2^53. */
export interface FolderId {
  /** The device number of the file system. */
  readonly device: string
  /** The inode number within that file system. */
  readonly inode: string
}

/** An engine's own figures. */
export interface StorageStats {
  /**
   * The store's id in hex: 16 random bytes, chosen when the store is created and kept in its files, so a copy or a backup has
   * the same id. Absent in memory, and for a folder that holds no store yet.
   */
  readonly storeId?: string
  /** The folder of this machine that holds the store. A copy has the same `storeId` but another folder. Absent without a folder. */
  readonly folder?: FolderId
  /** Whether commits can succeed, as far as is known without trying. `checkWritable` tries. */
  readonly writable: boolean
  /** Why commits can't succeed; absent if they can. */
  readonly writeProblem?: { readonly code: ErrorCode; readonly message: string }
  /** The version of the newest commit. */
  readonly version: number
  /** How many checkpoints were completed since opening. */
  readonly checkpoints: number
  /** Bytes of log that the next opening would have to replay. */
  readonly walBytes: number
  /** Bytes in data files, garbage included. */
  readonly dataBytes: number
  /** Bytes in data files that are still in use. */
  readonly liveBytes: number
  /** Bytes of memory that hold tree nodes which could be read from disk again. */
  readonly cachedBytes: number
  /** Bytes of memory that hold tree nodes which the next checkpoint will write. */
  readonly dirtyBytes: number
}
