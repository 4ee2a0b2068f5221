import type { ByteString } from '../core/bytes.ts'
import { checkOperations } from '../engine/operations.ts'
import type { BoundedRange, Place, Step, Updated } from '../engine/storage.ts'
import { checkScope, tenantOf } from './address.ts'
import type { ConnectionSettings } from './connection.ts'
import { ENTRIES_MAX } from './held-reads.ts'
import { Lane } from './lane.ts'
import { type RoundContext, UpdateRound, type WaitingUpdate } from './update-round.ts'
import { heldMs } from './writers.ts'

/** The most rounds under way. */
const LANES_MAX = 4

/**
 * One-step updates that never conflict, in any process. Updates that wait at the
 * same time share a round, which takes two calls.
 *
 * waiting → in a round → answered
 * in a round → waiting again (the connection was lost before the second call, a lock was not free in
 *   time, the server refused the round, or the step needs more than the round has read or locked)
 * in a round → outcome unknown (the connection was lost during the second call)
 *
 * A tenant has one round at a time, and moves behind the others after it. So a
 * tenant whose locks are held occupies one connection for a short time only.
 */
export class UpdateRounds {
  readonly #timeoutMs: number
  readonly #context: RoundContext
  readonly #lanes: Lane[]
  readonly #free: Lane[]
  readonly #tenants = new Map<ByteString, WaitingUpdate[]>()
  readonly #busy = new Set<ByteString>()
  readonly #underWay = new Set<Promise<unknown>>()
  /** Falls if the entries of ranges are large, so that a round does not read too many bytes. */
  #entriesMax = ENTRIES_MAX
  #isScheduled = false

  constructor(settings: ConnectionSettings, context: RoundContext) {
    this.#timeoutMs = settings.timeoutMs
    this.#context = context
    this.#lanes = Array.from({ length: LANES_MAX }, () => new Lane({ ...settings, lockMs: heldMs(settings) }))
    this.#free = [...this.#lanes]
  }

  update<T>(places: readonly Place[], ranges: readonly BoundedRange[], step: Step<T>): Promise<Updated<T>> {
    const scopes = new Set<ByteString>()
    for (const { scope } of [...places, ...ranges]) {
      checkScope(scope)
      scopes.add(scope)
    }
    const answer = new Promise<Updated<T>>((resolve, reject) => {
      let outcome: ReturnType<Step<T>>
      this.#enqueue({
        places,
        ranges,
        scopes,
        endAt: performance.now() + this.#timeoutMs,
        attempts: 0,
        isAlone: false,
        run(found, scanned) {
          outcome = step(found, scanned)
          checkOperations(outcome.operations)
          return outcome.operations
        },
        resolve: committed => resolve({ ...committed, result: outcome.result }),
        reject,
      })
    })
    const forget = (): void => {
      this.#underWay.delete(settled)
    }
    const settled = answer.then(forget, forget)
    this.#underWay.add(settled)
    return answer
  }

  /** Resolves once all updates so far have been answered. */
  async idle(): Promise<void> {
    await Promise.all(this.#underWay)
  }

  /** Waits for all updates so far, then closes the connections. */
  async close(): Promise<void> {
    await this.idle()
    await Promise.all(this.#lanes.map(lane => lane.close()))
  }

  #enqueue(update: WaitingUpdate): void {
    const [scope] = update.scopes
    const tenant = tenantOf(scope)
    const others = this.#tenants.get(tenant)
    if (others === undefined) this.#tenants.set(tenant, [update])
    else others.push(update)
    this.#schedule()
  }

  /** Begins rounds after all callers that were answered together have run, so that their next updates share a round. */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      for (const tenant of this.#tenants.keys()) {
        const lane = this.#busy.has(tenant) ? undefined : this.#free.pop()
        if (lane !== undefined) void this.#serve(tenant, lane)
      }
    })
  }

  async #serve(tenant: ByteString, lane: Lane): Promise<void> {
    this.#busy.add(tenant)
    const round = new UpdateRound(this.#tenants.get(tenant)!, this.#entriesMax, this.#context)
    const again = await this.#run(round, lane)
    this.#entriesMax = round.entriesMaxNext
    this.#busy.delete(tenant)
    this.#free.push(lane)
    const waiting = [...again, ...this.#tenants.get(tenant)!]
    this.#tenants.delete(tenant)
    if (waiting.length > 0) this.#tenants.set(tenant, waiting)
    if (this.#tenants.size > 0) this.#schedule()
  }

  async #run(round: UpdateRound, lane: Lane): Promise<readonly WaitingUpdate[]> {
    try {
      return await round.run(await lane.connection())
    } catch (error) {
      // There is no connection, or the round cannot be sent.
      lane.ready?.destroy()
      round.fail(error)
      return []
    }
  }
}
