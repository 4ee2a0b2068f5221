import type { Program, Step } from './steps.ts'

/** Programs that have found bugs, shortened as far as possible. */
export const REGRESSIONS: readonly { readonly found: string; readonly program: Program }[] = [
  {
    found: 'a transaction could read a key of its own that its own delete took for expired',
    program: program(
      { do: 'begin', slot: 0, tenant: 'default', scope: 'r1', readOnly: false },
      { do: 'in', slot: 0, call: { on: 'kv', name: 'put', args: ['a', 1, { ttlMs: 5 }] } },
      { do: 'wait', ms: 10 },
      { do: 'in', slot: 0, call: { on: 'kv', name: 'exists', args: ['a'] } },
      { do: 'in', slot: 0, call: { on: 'kv', name: 'delete', args: ['a'] } },
      { do: 'in', slot: 0, call: { on: 'kv', name: 'exists', args: ['a'] } },
      { do: 'end', slot: 0, how: 'commit' },
    ),
  },
]

function program(...steps: Step[]): Program {
  return { seed: 1, store: 'memory', durability: 'durable', steps }
}
