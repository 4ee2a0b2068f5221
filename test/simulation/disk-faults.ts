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
  /** Counted from 0. */
  readonly index: number
  readonly kind: DiskCallKind
  /** Its path; for calls on a folder that of the folder, empty for the disk's own. */
  readonly file: string
  /** Of a truncation, the new size. */
  readonly position: number
  readonly bytes: number
  phase: 'start' | 'end'
  /** Known at the end. */
  failed: boolean
}

/** `short` writes half and says so: again and again, that comes to no bytes at all. Only writes can be short. */
export type FaultError = 'EIO' | 'ENOSPC' | 'EMFILE' | 'short'

export interface DiskFault {
  readonly error: FaultError
  /** The first call that may fail, counted from 0. */
  readonly at?: number
  readonly when?: (call: DiskCall) => boolean
  /** Of the calls that `at` and `when` allow, how many fail; 1 unless told, `Infinity` for ever. */
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

  /** The fault that hits this call, if any; that counts as one of its times. */
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

/** An error such as Node throws. */
export function ioError(code: string, kind: DiskCallKind, file = ''): NodeJS.ErrnoException {
  return Object.assign(new Error(`${code}: simulated, ${kind} ${file}`), { code, syscall: kind })
}
