import type { CellState, Transition } from '../../src/index.ts'

/** The functions of transitions by name, so that programs are plain data. The database and the model run the same functions. */
export const CELL_FUNCTIONS: Readonly<Record<string, Transition<unknown>>> = {
  count: ({ value, version }) => ({ value: typeof value === 'number' ? value + 1 : 0, result: version }),
  wrap: state => ({ value: [state.value], result: shown(state) }),
  keep: state => ({ value: state.value, result: shown(state) }),
  fail: () => {
    throw new Error('the function says no')
  },
}

/** Functions with invalid results. They are refused when they return, so the cell must exist. */
export const BAD_CELL_FUNCTIONS: Readonly<Record<string, Transition<unknown>>> = {
  'returns nothing': () => undefined as unknown as ReturnType<Transition<unknown>>,
  'is async': (async () => ({ value: 1, result: 1 })) as unknown as Transition<unknown>,
  'returns a function': () => ({ value: (() => 1) as unknown as null, result: 1 }),
}

function shown({ value, version, updatedAt }: CellState): unknown {
  return Object.freeze({ value, version, updatedAt })
}
