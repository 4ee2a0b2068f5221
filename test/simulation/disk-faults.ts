export type DiskCallKind =
  | 'lock'
  | 'list'
  | 'open'
  | 'create'
  | 'rename'
  | 'remove'
  | 'makeFolder'
  | 'removeFolder'
  | 'syncFolder'
  | 'size'
  | 'read'
  | 'write'
  | 'writeLater'
  | 'truncate'
  | 'sync'
  | 'syncLater'

export interface DiskCall {
  /** The number of the call, from 0. */
  readonly index: number
  readonly kind: DiskCallKind
  /** The path of the file or folder; empty for the root of the disk. */
  readonly file: string
  /** For a truncation, the new size. */
  readonly position: number
  readonly bytes: number
  phase: 'start' | 'end'
  /** Set when the call ends. */
  failed: boolean
}

/** `short` writes half of the bytes and returns their number. Repeated often enough, it writes none. It affects writes only. */
export type FaultError = 'EIO' | 'ENOSPC' | 'EMFILE' | 'short'

export interface DiskFault {
  readonly error: FaultError
  /** The number of the first call that may fail, from 0. */
  readonly at?: number
  readonly when?: (call: DiskCall) => boolean
  /** How many of the calls that `at` and `when` select fail: 1 by default, `Infinity` for all. */
  readonly times?: number
}

export class DiskFaults {
  #faults: { readonly fault: DiskFault; left: number }[] = []

  get none(): boolean {
    return this.#faults.length === 0
  }

  add(fault: DiskFault): void {
    this.#faults.push({ fault, left: fault.times ?? 1 })
  }

  clear(): void {
    this.#faults = []
  }

  /** Returns the fault for this call, if any, and counts it. */
  take(call: DiskCall): FaultError | undefined {
    for (const entry of this.#faults) {
      const { error, at, when } = entry.fault
      if (entry.left === 0) continue
      if (error === 'short' && call.kind !== 'write' && call.kind !== 'writeLater') continue
      if (at !== undefined && call.index < at) continue
      if (when !== undefined && !when(call)) continue
      entry.left--
      return error
    }
    return undefined
  }
}

/** An error like those that Node throws. */
export function ioError(code: string, kind: DiskCallKind, file = ''): NodeJS.ErrnoException {
  return Object.assign(new Error(`${code}: simulated, ${kind} ${file}`), { code, syscall: kind })
}
