import type { Call, SingleCall } from './steps.ts'
import type { Outcome } from './world.ts'

/** The format of the ids that the database makes. The model accepts no other. */
const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

function madeId(id: unknown): string {
  return typeof id === 'string' && UUID_V7.test(id) ? id : 'no UUID'
}

/** Adds the id that the database has made to a call, because the model can't know it in advance. */
export function withId<C extends SingleCall | Call>(call: C, outcome: Outcome): C {
  if (call.bad === true) return call
  const made = 'value' in outcome ? outcome.value : undefined
  if (call.on === 'runs' && call.name === 'create') {
    const [options] = call.args as [{ runId?: string }]
    if (options.runId !== undefined) return call
    const runId = madeId((made as { runId?: string } | undefined)?.runId)
    return { ...call, args: [{ ...options, runId }] }
  }
  if (call.on !== 'traces' || !call.name.startsWith('record')) return call
  const options = call.args.at(-1) as { id?: string }
  if (options.id !== undefined) return call
  return { ...call, args: [...call.args.slice(0, -1), { ...options, id: madeId(made) }] }
}
