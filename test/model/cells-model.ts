import type { CellState, Value } from '../../src/index.ts'
import { CELL_FUNCTIONS } from './cell-functions.ts'
import {
  byBytes,
  checkWritable,
  Refusal,
  readPoint,
  readRange,
  type Stamp,
  type View,
  wrote,
} from './scope-model.ts'

/** A cell. A deleted cell is kept without a value, because its version continues. */
export interface CellRecord {
  readonly value: Value | undefined
  readonly version: number
  readonly stamp: Stamp
  readonly time: number
}

export const cellsModel = {
  read(view: View, name: string): unknown {
    const cell = find(view, name)
    return cell?.value === undefined
      ? undefined
      : { value: cell.value, version: cell.version, updatedAt: cell.time }
  },

  exists: (view: View, name: string): boolean => find(view, name)?.value !== undefined,

  init(view: View, name: string, value: Value): number {
    checkWritable(view)
    if (find(view, name)?.value !== undefined) throw new Refusal('CELL_EXISTS')
    return write(view, name, value)
  },

  cas(view: View, name: string, expected: number, value: Value): number {
    checkWritable(view)
    if (existing(view, name).version !== expected) throw new Refusal('VERSION_MISMATCH')
    return write(view, name, value)
  },

  set(view: View, name: string, value: Value): number {
    checkWritable(view)
    find(view, name)
    return write(view, name, value)
  },

  delete(view: View, name: string): boolean {
    checkWritable(view)
    const cell = find(view, name)
    if (cell?.value === undefined) return false
    const { stamp, time } = view
    view.scope.cells.set(name, { value: undefined, version: cell.version, stamp, time })
    wrote(view, `cell ${name}`)
    return true
  },

  list(view: View): string[] {
    readRange(view, ({ cells }) =>
      [...cells]
        .map(([name, { stamp }]) => `${name}@${stamp}`)
        .sort()
        .join(),
    )
    return [...view.scope.cells]
      .filter(([, { value }]) => value !== undefined)
      .map(([name]) => name)
      .sort(byBytes)
  },

  transition(view: View, name: string, step: string): unknown {
    checkWritable(view)
    const cell = existing(view, name)
    return transition(view, name, step, {
      value: cell.value as Value,
      version: cell.version,
      updatedAt: cell.time,
    })
  },

  transitionOrInit(view: View, name: string, initial: Value, step: string): unknown {
    checkWritable(view)
    const cell = find(view, name)
    const state: CellState =
      cell?.value === undefined
        ? { value: initial, version: 0 }
        : { value: cell.value, version: cell.version, updatedAt: cell.time }
    return transition(view, name, step, state)
  },
}

function transition(view: View, name: string, step: string, state: CellState): unknown {
  const { value, result } = CELL_FUNCTIONS[step](state)
  return { result, value, version: write(view, name, value) }
}

function find(view: View, name: string): CellRecord | undefined {
  readPoint(view, `cell ${name}`, ({ cells }) => cells.get(name)?.stamp ?? 0)
  return view.scope.cells.get(name)
}

function existing(view: View, name: string): CellRecord {
  const cell = find(view, name)
  if (cell?.value === undefined) throw new Refusal('CELL_NOT_FOUND')
  return cell
}

function write(view: View, name: string, value: Value): number {
  const { stamp, time } = view
  const version = (view.scope.cells.get(name)?.version ?? 0) + 1
  view.scope.cells.set(name, { value, version, stamp, time })
  wrote(view, `cell ${name}`)
  return version
}
