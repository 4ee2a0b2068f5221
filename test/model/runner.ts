import { Random } from '../../src/testing/random.ts'
import { SimulatedClock } from '../../src/testing/simulated-clock.ts'
import { disagreement } from './comparison.ts'
import { type Counts, newCounts } from './counts.ts'
import { withId } from './made-ids.ts'
import { observations } from './observations.ts'
import { orders, type UnderWay } from './orders.ts'
import {
  type Call,
  type Program,
  type SingleCall,
  type Step,
  show,
  TENANTS,
  type TransactionStep,
} from './steps.ts'
import {
  type OpenSlot,
  outcomeOf,
  performIn,
  receiptsOf,
  Subject,
  type TransactionOutcome,
} from './subject.ts'
import { type Now, type Outcome, type TransactionModel, World } from './world.ts'

/** A difference between the expected and the actual result. */
class Mismatch extends Error {}

/** The maximum number of worlds that are kept apart. With more, everything is read to reduce their number. */
const WORLDS_MAX = 6

/** Runs the program on the database and on the model. Throws a `Mismatch` where they differ. */
export async function runProgram(program: Program, counts: Counts = newCounts()): Promise<void> {
  counts.programs++
  const clock = new SimulatedClock()
  const random = new Random(program.seed)
  const { store, durability } = program
  const subject = await Subject.open({ store, durability, clock, random })
  const runner = new Runner(subject, clock, counts)
  for (const [i, step] of program.steps.entries()) {
    try {
      counts.steps++
      await runner.run(step)
    } catch (error) {
      throw new Mismatch(`step ${i}: ${(error as Error).message}`, { cause: error })
    }
  }
  await runner.run({ do: 'look' })
  await runner.close()
}

class Runner {
  #subject: Subject
  #worlds: World[] = [new World()]
  readonly #slots: (OpenSlot | undefined)[] = []
  readonly #clock: SimulatedClock
  readonly #counts: Counts
  #latest = 0

  constructor(subject: Subject, clock: SimulatedClock, counts: Counts) {
    this.#subject = subject
    this.#clock = clock
    this.#counts = counts
  }

  async run(step: Step): Promise<void> {
    switch (step.do) {
      case 'call':
        return this.#call(step.call, step.via)
      case 'transaction':
        return this.#transaction(step)
      case 'begin':
        return this.#begin(step)
      case 'in':
        return this.#callIn(step.slot, step.call)
      case 'end':
        return step.how === 'commit' ? this.#commit(step.slot) : this.#rollback(step.slot)
      case 'together':
        return this.#together(step.calls)
      case 'wait':
        return this.#wait(step.ms)
      case 'look':
        return this.#look()
      case 'checkpoint':
        return this.#subject.storage.checkpoint()
      case 'reopen':
        return this.#restart(await this.#subject.reopen())
      case 'crash':
        return this.#crash(step)
    }
  }

  async close(): Promise<void> {
    await this.#subject.storage.close()
  }

  /** The database's time is its clock, or the latest time so far if the clock was set back. */
  #now(): Now {
    const clock = this.#clock.now()
    this.#latest = Math.max(this.#latest, clock)
    return { time: this.#latest, clock }
  }

  async #wait(ms: number): Promise<void> {
    const { clock } = this.#now()
    // Shows the database the time that the model knows.
    this.#subject.storage.now()
    if (ms < 0) {
      // A checkpoint removes expired entries. Otherwise it would be unknown which of them become visible again.
      await this.#subject.storage.checkpoint()
      for (const world of this.#worlds) world.forgetExpired(clock)
    }
    this.#clock.jump(ms)
  }

  async #call(asked: SingleCall, via: 'db' | 'run' = 'db'): Promise<void> {
    const actual = await this.#perform(asked, via)
    const call = withId(asked, actual)
    this.#expect(world => disagreement(world.perform(call, this.#now()), actual, world))
  }

  async #perform(call: SingleCall, via: 'db' | 'run' = 'db'): Promise<Outcome> {
    const outcome = await this.#subject.perform(call, via)
    this.#counts.calls++
    if ('error' in outcome) this.#counts.refusals++
    return outcome
  }

  async #begin({ slot, tenant, scope, readOnly }: Step & { do: 'begin' }): Promise<void> {
    // A transaction that is still open in this slot stays open and never commits.
    this.#slots[slot] = await this.#subject.begin(tenant, scope, readOnly)
    for (const world of this.#worlds) {
      world.transactions[slot] = world.begin(tenant, scope, this.#now(), readOnly)
    }
  }

  async #callIn(slot: number, asked: Call): Promise<void> {
    const open = this.#slots[slot]
    if (open === undefined) return
    const actual = await performIn(open, asked)
    const call = withId(asked, actual)
    this.#counts.calls++
    this.#expect(world =>
      disagreement(world.performIn(transactionIn(world, slot), call, this.#now()), actual, world),
    )
  }

  async #commit(slot: number): Promise<void> {
    const open = this.#slots[slot]
    if (open === undefined) return
    const end = await outcomeOf(() => open.tx.commit())
    this.#counts.transactions++
    const appended = await receiptsOf(open.receipts)
    this.#expect(world => {
      const tx = transactionIn(world, slot)
      if (tx.ended) return disagreement({ error: 'INVALID_OPERATION' }, end, world)
      return this.#committed(world, tx, end, appended)
    })
  }

  async #rollback(slot: number): Promise<void> {
    const open = this.#slots[slot]
    if (open === undefined) return
    const end = await outcomeOf(() => open.tx.rollback())
    this.#expect(world => {
      const tx = transactionIn(world, slot)
      const expected: Outcome = tx.ended ? { error: 'INVALID_OPERATION' } : { value: undefined }
      tx.ended = true
      return disagreement(expected, end, world)
    })
  }

  async #transaction(step: TransactionStep): Promise<void> {
    const actual = await this.#subject.transaction(step)
    this.#counts.transactions++
    this.#counts.calls += actual.attempts.length * step.calls.length
    this.#expect(world => this.#transacted(world, step, actual))
  }

  #transacted(
    world: World,
    { tenant, scope, calls, end, readOnly, interference }: TransactionStep,
    actual: TransactionOutcome,
  ): string | undefined {
    for (const [n, { outcomes, appended }] of actual.attempts.entries()) {
      const tx = world.begin(tenant, scope, this.#now(), readOnly)
      for (const [i, call] of calls.entries()) {
        if (n === 0 && interference?.at === i) {
          const other = actual.interference as Outcome
          const wrong = disagreement(
            world.perform(withId(interference.call, other), this.#now()),
            other,
            world,
          )
          if (wrong !== undefined) return `meanwhile: ${wrong}`
        }
        const expected = world.performIn(tx, withId(call, outcomes[i]), this.#now())
        const wrong = disagreement(expected, outcomes[i], world)
        if (wrong !== undefined) return `attempt ${n}, call ${i}: ${wrong}`
      }
      if (end === 'throw') return disagreement({ error: 'thrown: called off' }, actual.end, world)
      const isLast = n === actual.attempts.length - 1
      const wrong = this.#committed(world, tx, isLast ? actual.end : { error: 'CONFLICT' }, appended)
      if (wrong !== undefined) return wrong
    }
    return undefined
  }

  /** Checks whether the transaction can have ended like this. If it has committed, applies it to the world. */
  #committed(
    world: World,
    tx: TransactionModel,
    end: Outcome,
    receipts: readonly Outcome[],
    isTogether = false,
  ): string | undefined {
    const conflict = world.conflict(tx, this.#now())
    const hasFailed = 'error' in end && end.error === 'CONFLICT'
    if (hasFailed) {
      this.#counts.conflicts++
      tx.ended = true
      return conflict === 'no' ? 'CONFLICT, though nothing that it has read was changed' : undefined
    }
    if (conflict === 'must') return `${show(end)}, though what it has read was changed`
    const wrong = disagreement({ value: undefined }, end, world)
    if (wrong !== undefined) return wrong
    const appended = world.commit(tx, this.#now(), isTogether).filter(each => !isEmpty(each))
    return disagreement({ value: appended }, { value: receipts }, world)
  }

  /** Runs calls concurrently. Their results must match some serial order. */
  async #together(asked: readonly UnderWay['call'][]): Promise<void> {
    const answered = asked.map(async call => {
      if ('do' in call) return { call, outcome: await this.#subject.transaction(call) }
      const outcome = await this.#perform(call)
      return { call: withId(call, outcome), outcome }
    })
    this.#fork(await Promise.all(answered))
    if (this.#worlds.length > WORLDS_MAX) await this.#look()
  }

  async #crash(step: Step & { do: 'crash' }): Promise<void> {
    const underWay = step.calls.map(call => {
      const one: UnderWay = { call, outcome: undefined }
      const settle = (outcome: Outcome | TransactionOutcome): void => {
        one.outcome = outcome
      }
      void ('do' in call ? this.#subject.transaction(call) : this.#subject.perform(call)).then(settle)
      return one
    })
    for (let turn = 0; turn < step.turns; turn++) await undefined
    // From here on no caller receives an answer.
    const heard = underWay.map(one => ({ ...one }))
    if (step.kind === 'power') this.#counts.powerCuts++
    else this.#counts.processCrashes++
    this.#counts.unanswered += heard.filter(({ outcome }) => outcome === undefined).length
    const next = this.#subject.crash(step.kind)
    this.#fork(heard)
    await this.#restart(await next)
  }

  async #restart(subject: Subject): Promise<void> {
    this.#counts.reopenings++
    this.#subject = subject
    this.#slots.length = 0
    for (const world of this.#worlds) world.transactions.length = 0
    this.#clock.advance(Math.max(0, this.#now().time - this.#clock.now()))
    await this.#look()
  }

  /** Replaces each world with all worlds that the calls can lead to: in any order, and with or without each unanswered call. */
  #fork(answered: readonly UnderWay[]): void {
    const calls = answered.map(one => (wasCutOff(one, answered) ? { ...one, outcome: undefined } : one))
    const worlds: World[] = []
    const wrongs: string[] = []
    for (const order of orders(calls)) {
      for (const before of this.#worlds) {
        const world = new World(before)
        world.startGroup()
        let wrong: string | undefined
        for (const { call, outcome } of order) wrong ??= this.#applied(world, call, outcome)
        if (wrong === undefined) worlds.push(world)
        else wrongs.push(wrong)
      }
    }
    if (worlds.length === 0) throw new Mismatch(wrongs[0])
    this.#worlds = worlds
  }

  #applied(world: World, call: UnderWay['call'], outcome: UnderWay['outcome']): string | undefined {
    if (!('do' in call)) {
      const expected = world.perform(call, this.#now(), true)
      return outcome === undefined ? undefined : disagreement(expected, outcome as Outcome, world)
    }
    return this.#transactedInOrder(world, call, outcome as TransactionOutcome | undefined)
  }

  /** Checks a transaction at its place in a serial order. It had no conflict there, so only its last attempt counts. */
  #transactedInOrder(
    world: World,
    { tenant, scope, calls, end, readOnly }: TransactionStep,
    actual: TransactionOutcome | undefined,
  ): string | undefined {
    const tx = world.begin(tenant, scope, this.#now(), readOnly)
    const last = actual?.attempts.at(-1)
    let wrong: string | undefined
    for (const [i, call] of calls.entries()) {
      const outcome = last?.outcomes[i]
      const asked = outcome === undefined ? call : withId(call, outcome)
      const expected = world.performIn(tx, asked, this.#now())
      // P12: `delete` returns whether the key existed when the transaction began. That is not a read, so it may differ here.
      const isValidated = call.on !== 'kv' || call.name !== 'delete'
      if (outcome !== undefined && isValidated) wrong ??= disagreement(expected, outcome, world)
    }
    if (wrong !== undefined || actual === undefined || last === undefined) {
      if (end === 'commit') world.commit(tx, this.#now(), true)
      return wrong
    }
    if (end === 'throw') return disagreement({ error: 'thrown: called off' }, actual.end, world)
    return this.#committed(world, tx, actual.end, last.appended, true)
  }

  /** Reads everything and compares it. */
  async #look(): Promise<void> {
    this.#counts.comparisons++
    for (const call of observations(this.#worlds)) {
      const actual = await this.#subject.perform(call)
      this.#expect(world => {
        const wrong = disagreement(world.perform(call, this.#now()), actual, world)
        return wrong === undefined
          ? undefined
          : `${call.tenant}.${call.on}.${call.name}(${show(call.args)}): ${wrong}`
      })
    }
    for (const tenant of TENANTS) {
      const { ok, problems } = await this.#subject.handle(tenant).verifyIndices()
      if (!ok) throw new Mismatch(`indexes of ${tenant}: ${JSON.stringify(problems)}`)
    }
    if (this.#worlds.length > 1) {
      this.#worlds = [...new Map(this.#worlds.map(world => [world.hidden, world])).values()]
    }
  }

  /** Removes the worlds that do not match the database. At least one must remain. */
  #expect(judge: (world: World) => string | undefined): void {
    const wrongs = this.#worlds.map(judge)
    const left = this.#worlds.filter((_, i) => wrongs[i] === undefined)
    if (left.length === 0) throw new Mismatch(wrongs[0])
    this.#worlds = left
  }
}

function transactionIn(world: World, slot: number): TransactionModel {
  return world.transactions[slot] as TransactionModel
}

function isEmpty(outcome: Outcome): boolean {
  return 'value' in outcome && Array.isArray(outcome.value) && outcome.value.length === 0
}

/** An iteration during a deletion may fail because its log was deleted. It changes nothing, so it counts as unanswered. */
function wasCutOff({ call, outcome }: UnderWay, beside: readonly UnderWay[]): boolean {
  if ('do' in call || !/^(iterate|tail|readByType|readRange)$/.test(call.name)) return false
  const isBroken = outcome !== undefined && 'error' in outcome && outcome.error === 'EVENT_CHAIN_BROKEN'
  return isBroken && beside.some(one => 'do' in one.call || /^(delete|drop)$/.test(one.call.name))
}
