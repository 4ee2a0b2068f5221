import { readFileSync } from 'node:fs'
import { expect } from 'vitest'
import type { Annals, Event, EventReceipt } from '../../src/index.ts'

/**
 * Tracks the requests of killed writers and the answers that they received, and derives which data must exist and which
 * may exist.
 */

type Reported =
  | { readonly asked: number; readonly name: string; readonly runId?: string }
  | { readonly answered: number; readonly answer?: unknown }

interface Operation {
  readonly name: string
  readonly runId: string | undefined
  answered: boolean
  answer: unknown
  /** Whether the effect was found in the store. It is set at the first check and must not change later. */
  found: boolean | undefined
}

const MAIN = 'main'

export class PrimitivesOracle {
  readonly counts = { asked: 0, answered: 0, unanswered: 0, found: 0, runs: 0, deleted: 0, events: 0 }
  readonly #operations = new Map<number, Operation>()

  get next(): number {
    return this.#operations.size
  }

  /** Processes the report that a writer wrote before it was killed. The last line may be incomplete. */
  takeIn(path: string): void {
    const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1)
    for (const reported of lines.map(line => JSON.parse(line) as Reported)) {
      if ('asked' in reported) {
        const { asked, name, runId } = reported
        expect(asked, 'operations are numbered on').toBe(this.#operations.size)
        this.#operations.set(asked, { name, runId, answered: false, answer: undefined, found: undefined })
        this.counts.asked++
      } else {
        const operation = this.#operations.get(reported.answered) as Operation
        operation.answered = true
        operation.answer = reported.answer
        this.counts.answered++
      }
    }
  }

  /** Compares all data. Returns the ids of the runs that exist. */
  async check(db: Annals): Promise<string[]> {
    const events: Event[] = []
    for await (const event of db.events.iterate(MAIN)) events.push(event)
    expect(events.map(({ sequence }) => sequence)).toEqual(events.map((_, i) => i))
    expect(await db.events.verifyChain(MAIN)).toEqual({ isValid: true, length: events.length })
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
    this.counts.events = events.length
    await this.#checkAll(db, events)
    this.#checkBatches(events)
    const keys = numbers(await db.kv.list(MAIN, { prefix: 'put-' }))
    this.#settle('put', keys)
    this.#settle('cell', numbers((await db.cells.list(MAIN)).filter(name => name.startsWith('cell-'))))
    this.#settle('trace', numbers((await db.traces.children(MAIN, 'root')).map(({ id }) => id)))
    await this.#checkNever(db, events)
    return this.#checkRuns(db)
  }

  /** Checks that the writes of a transaction are in all primitives or in none. */
  async #checkAll(db: Annals, events: readonly Event[]): Promise<void> {
    const appended = new Map(
      events.filter(({ type }) => type === 'all').map(event => [Number(event.payload), event]),
    )
    const found = [...appended.keys()].sort((a, b) => a - b)
    const inKv = numbers(await db.kv.list(MAIN, { prefix: 'all-' }))
    const inCells = numbers((await db.cells.list(MAIN)).filter(name => name.startsWith('all-')))
    const inTraces = numbers((await db.traces.queryByTag(MAIN, 'all')).map(({ id }) => id))
    expect({ inKv, inCells, inTraces }).toEqual({ inKv: found, inCells: found, inTraces: found })
    expect((await db.cells.read(MAIN, 'alls'))?.value ?? 0).toBe(found.length)
    expect((await db.machines.current(MAIN, 'door').catch(() => ({ version: 1 }))).version).toBe(
      found.length + 1,
    )
    this.#settle('all', found)
    for (const [n, { answer, answered }] of this.#operations) {
      if (!answered || this.#operations.get(n)?.name !== 'all') continue
      const { sequence, hash } = appended.get(n) as Event
      expect({ sequence, hash }, `the receipt of ${n}`).toEqual(answer)
    }
  }

  #checkBatches(events: readonly Event[]): void {
    const batches = events.filter(({ type }) => type === 'batch')
    const found = [...new Set(batches.map(({ payload }) => (payload as number[])[0]))]
    for (const n of found) {
      const parts = batches.filter(({ payload }) => (payload as number[])[0] === n)
      const [{ sequence }] = parts
      expect(parts.map(event => [event.payload, event.sequence])).toEqual(
        [0, 1, 2].map(part => [[n, part], sequence + part]),
      )
      const { answered, answer } = this.#operations.get(n) as Operation
      if (answered) expect(parts.map(receiptOf)).toEqual(answer)
    }
    this.#settle('batch', found)
  }

  /** Checks that no data of aborted or uncommitted transactions exists. */
  async #checkNever(db: Annals, events: readonly Event[]): Promise<void> {
    expect(await db.kv.list(MAIN, { prefix: 'never' })).toEqual([])
    expect((await db.cells.list(MAIN)).filter(name => name.startsWith('never'))).toEqual([])
    expect(await db.traces.queryByTag(MAIN, 'never')).toEqual([])
    expect(events.filter(({ type }) => type === 'never')).toEqual([])
  }

  async #checkRuns(db: Annals): Promise<string[]> {
    const runs = new Map((await db.runs.children(MAIN)).map(run => [run.runId, run]))
    const tombstones = new Map((await db.runs.tombstones()).map(tombstone => [tombstone.runId, tombstone]))
    const there: string[] = []
    for (const [n, { name, answered, answer, runId }] of this.#operations) {
      if (name === 'create') {
        const id = `run-${n}`
        if (answered) expect(runs.has(id) || tombstones.has(id), `run ${id}`).toBe(true)
        expect(runs.has(id) && tombstones.has(id), `run ${id} is there and deleted`).toBe(false)
        await this.#checkRun(db, n, answered && runs.has(id))
        if (answered && runs.has(id)) there.push(id)
      } else if (name === 'delete') {
        const tombstone = tombstones.get(runId as string)
        if (answered) expect(tombstone).toMatchObject(answer as object)
        // If an unanswered deletion had no effect, a later deletion may have deleted the run.
        if (this.#operations.get(n)?.found !== false) this.#settleOne(n, tombstone !== undefined)
      } else if (name === 'tag' && answered && runs.has(runId as string)) {
        expect(runs.get(runId as string)?.tags).toEqual(['made', 'tagged'])
      } else if (name === 'complete' && answered && runs.has(runId as string)) {
        expect(runs.get(runId as string)?.status).toBe('Completed')
      }
    }
    const deleted = [...this.#operations.values()].filter(
      ({ name, found }) => name === 'delete' && found === true,
    )
    expect(tombstones.size, 'a tombstone for each run that was deleted').toBe(deleted.length)
    this.counts.runs = runs.size
    this.counts.deleted = tombstones.size
    return there
  }

  /** Checks that the data of a run exists completely or not at all, because one transaction writes it and one deletes it. */
  async #checkRun(db: Annals, n: number, isFilled: boolean): Promise<void> {
    const id = `run-${n}`
    const [keys, events, cells, traces] = await Promise.all([
      db.kv.list(id),
      db.events.length(id),
      db.cells.list(id),
      db.traces.list(id),
    ])
    const all = [[`all-${n}`], 1, [`all-${n}`, 'alls'], [`all-${n}`]]
    const found = [keys, events, cells, traces]
    if (isFilled || events > 0) expect(found).toEqual(all)
    else expect(found).toEqual([[], 0, [], []])
    expect((await db.events.verifyChain(id)).isValid).toBe(true)
  }

  #settle(name: string, found: readonly number[]): void {
    const there = new Set(found)
    for (const [n, operation] of this.#operations)
      if (operation.name === name) this.#settleOne(n, there.has(n))
    for (const n of found) expect(this.#operations.get(n)?.name, `${n} was asked for`).toBe(name)
  }

  #settleOne(n: number, isThere: boolean): void {
    const operation = this.#operations.get(n) as Operation
    if (operation.answered) expect(isThere, `${operation.name} ${n}, which was answered, is there`).toBe(true)
    else if (operation.found === undefined) {
      this.counts.unanswered++
      if (isThere) this.counts.found++
    }
    if (operation.found !== undefined)
      expect(isThere, `${operation.name} ${n} is as before`).toBe(operation.found)
    operation.found = isThere
  }
}

function receiptOf({ sequence, hash }: Event): EventReceipt {
  return { sequence, hash }
}

/** The numbers in names such as `put-17`. */
function numbers(names: readonly string[]): number[] {
  return names.map(name => Number(name.slice(name.indexOf('-') + 1))).sort((a, b) => a - b)
}
