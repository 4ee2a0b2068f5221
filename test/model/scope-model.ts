import type { ErrorCode } from '../../src/index.ts'
import type { CellRecord } from './cells-model.ts'
import type { EventRecord } from './events-model.ts'
import type { KvRecord } from './kv-model.ts'
import type { MachineRecord } from './machines-model.ts'
import type { TraceRecord } from './traces-model.ts'

/** The data of one scope. Records are replaced and never modified, so copying the maps copies everything. */
export class ScopeState {
  readonly kv: Map<string, KvRecord>
  readonly cells: Map<string, CellRecord>
  readonly machines: Map<string, MachineRecord>
  readonly traces: Map<string, TraceRecord>
  readonly events: EventRecord[]
  /** The sequence of the event with each idempotency key. */
  readonly eventKeys: Map<string, number>

  constructor(from?: ScopeState) {
    this.kv = new Map(from?.kv)
    this.cells = new Map(from?.cells)
    this.machines = new Map(from?.machines)
    this.traces = new Map(from?.traces)
    this.events = [...(from?.events ?? [])]
    this.eventKeys = new Map(from?.eventKeys)
  }

  get isEmpty(): boolean {
    const { kv, cells, machines, traces, events } = this
    return kv.size + cells.size + machines.size + traces.size + events.length === 0
  }
}

/** The number of the commit that wrote a record, in order. 0 stands for the reading transaction, which has not committed. */
export type Stamp = number

/** An expected error. It is not an `Error`, because many are made and their stacks are never used. */
export class Refusal {
  readonly code: ErrorCode

  constructor(code: ErrorCode) {
    this.code = code
  }
}

/** A read as a function of the state. If its result differs at the commit, the transaction has a conflict. */
type Fingerprint = (scope: ScopeState, moment: number) => string | number

/** The reads and writes of a transaction so far. */
export class Tracker {
  readonly written: Set<string>
  readonly must: Fingerprint[]
  readonly may: Fingerprint[]
  appends: number
  /** Whether an append of the transaction itself was read. Events then keep the time of their call. */
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

/** The view of one call on a scope: its time, the stamp of its commit, and its transaction, if any. */
export interface View {
  readonly scope: ScopeState
  /** The parts of the scope's name. */
  readonly parts: readonly string[]
  /** The time of the call. */
  readonly now: number
  /** The clock at the call, from which lifetimes are counted. */
  readonly clock: number
  /** The clock at the moment that the view shows. Entries that expire by then are invisible. */
  readonly moment: number
  /** The stamp of the records that the call writes. */
  readonly stamp: Stamp
  readonly time: number
  readonly tracker?: Tracker | undefined
  readonly readOnly?: boolean | undefined
}

/** Records a read of one key. A key that the transaction itself has written needs no validation. */
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

/** Compares the UTF-8 bytes, unlike the comparison of strings in JavaScript. */
export function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b))
}
