import type { ErrorCode } from '../../src/index.ts'
import type { CellRecord } from './cells-model.ts'
import type { EventRecord } from './events-model.ts'
import type { KvRecord } from './kv-model.ts'
import type { MachineRecord } from './machines-model.ts'
import type { TraceRecord } from './traces-model.ts'

/** What one scope holds. Records are replaced, never changed, so that a copy of the maps is a copy of all. */
export class ScopeState {
  readonly kv: Map<string, KvRecord>
  readonly cells: Map<string, CellRecord>
  readonly machines: Map<string, MachineRecord>
  readonly traces: Map<string, TraceRecord>
  readonly events: EventRecord[]

  constructor(from?: ScopeState) {
    this.kv = new Map(from?.kv)
    this.cells = new Map(from?.cells)
    this.machines = new Map(from?.machines)
    this.traces = new Map(from?.traces)
    this.events = [...(from?.events ?? [])]
  }

  get isEmpty(): boolean {
    const { kv, cells, machines, traces, events } = this
    return kv.size + cells.size + machines.size + traces.size + events.length === 0
  }
}

/** Which commit wrote a record: they are numbered in order. 0: the transaction that looks, which has not committed. */
export type Stamp = number

/** What the database has to answer with. No `Error`: there are many, and nobody looks at their stacks. */
export class Refusal {
  readonly code: ErrorCode

  constructor(code: ErrorCode) {
    this.code = code
  }
}

/** Something that was read, as a function of a state: if it comes out otherwise at the commit, that is a conflict. */
type Fingerprint = (scope: ScopeState, moment: number) => string | number

/** What a transaction has read and written so far. */
export class Tracker {
  readonly written: Set<string>
  readonly must: Fingerprint[]
  readonly may: Fingerprint[]
  appends: number
  /** Somebody has looked at an own append: it keeps its time. */
  linked: boolean

  constructor(from?: Tracker) {
    this.written = new Set(from?.written)
    this.must = [...(from?.must ?? [])]
    this.may = [...(from?.may ?? [])]
    this.appends = from?.appends ?? 0
    this.linked = from?.linked ?? false
  }

  get writes(): boolean {
    return this.written.size > 0 || this.appends > 0
  }
}

/** A scope as one call sees it: at a moment, on behalf of a commit, maybe in a transaction. */
export interface View {
  readonly scope: ScopeState
  /** The parts of its name. */
  readonly parts: readonly string[]
  /** When the call is made. */
  readonly now: number
  /** The clock when the call is made: lifetimes begin then. */
  readonly clock: number
  /** The clock as of which things are seen: what expires by then is gone. */
  readonly moment: number
  /** What records that it writes are marked with. */
  readonly stamp: Stamp
  readonly time: number
  readonly tracker?: Tracker | undefined
  readonly readOnly?: boolean | undefined
}

/** A point read; what the transaction has written itself needs no validation. */
export function readPoint({ tracker }: View, id: string, fingerprint: Fingerprint): void {
  if (tracker === undefined || tracker.written.has(id)) return
  tracker.must.push(fingerprint)
  tracker.may.push(fingerprint)
}

export function readRange({ tracker }: View, fingerprint: Fingerprint, isExact = true): void {
  if (isExact) tracker?.must.push(fingerprint)
  tracker?.may.push(fingerprint)
}

export function checkWritable({ readOnly }: View): void {
  if (readOnly === true) throw new Refusal('INVALID_OPERATION')
}

export function wrote({ tracker }: View, id: string): void {
  tracker?.written.add(id)
}

/** By the bytes of their UTF-8, which is not how JavaScript compares strings. */
export function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b))
}
