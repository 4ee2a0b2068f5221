import type { UpdateChanges, UpdateFound, UpdateReads, Value } from '../../src/index.ts'

type Change = (found: UpdateFound<Value>) => UpdateChanges<unknown, Value>

/** The functions of `kv.update` by name, so that programs are plain data. The database and the model run the same functions. */
export const UPDATE_FUNCTIONS: Readonly<Record<string, (reads: UpdateReads) => Change>> = {
  claim: () => found => {
    const next = found.ranges[0]?.[0]
    if (next === undefined) return { result: 'empty' }
    return { deletes: [next[0]], result: Object.freeze([...next]) }
  },
  count:
    ({ keys = [] }) =>
    found => ({
      puts: keys.map((key, i) => ({ key, value: typeof found.keys[i] === 'number' ? found.keys[i] + 1 : 0 })),
      result: Object.freeze([...found.keys]),
    }),
  look: () => found => ({
    result: Object.freeze(found.ranges.map(pairs => Object.freeze(pairs.map(([key]) => key)))),
  }),
  fail: () => () => {
    throw new Error('the function says no')
  },
}
