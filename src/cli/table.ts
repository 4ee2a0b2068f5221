import { cutTo, safeText, widthOf } from './safe-text.ts'
import type { Terminal } from './terminal.ts'

export interface Column<T> {
  readonly title: string
  readonly text: (row: T) => string
  /** Colours the text; must not change its width. */
  readonly paint?: (text: string, row: T) => string
  readonly alignRight?: boolean
  /**
   * What happens in a terminal that is too narrow. `cut`, the default, shortens the text. `whole` never does: ids are there
   * to be copied. `leave out` drops the column.
   */
  readonly fit?: 'cut' | 'whole' | 'leave out'
}

const GAP = '  '

/** Prints aligned columns that fit the width of the terminal. All texts are escaped first. */
export async function printTable<T>(
  terminal: Terminal,
  rows: readonly T[],
  all: readonly Column<T>[],
): Promise<void> {
  const shown = all.map(column => {
    const cells = rows.map(row => safeText(column.text(row)))
    const width = cells.reduce((widest, cell) => Math.max(widest, widthOf(cell)), widthOf(column.title))
    return { column, cells, width }
  })
  const { kept, fitted } = withinColumns(shown, terminal.columns)
  const columns = kept.map(({ column }) => column)
  const place = (text: string, i: number): { readonly text: string; readonly pad: string } => {
    const cut = cutTo(text, fitted[i])
    return { text: cut, pad: ' '.repeat(fitted[i] - widthOf(cut)) }
  }
  const line = (texts: readonly string[], paint: (text: string, i: number) => string): string =>
    texts
      .map((text, i) => {
        const { text: cut, pad } = place(text, i)
        return columns[i].alignRight === true ? `${pad}${paint(cut, i)}` : `${paint(cut, i)}${pad}`
      })
      .join(GAP)
      .trimEnd()
  const titles = columns.map(({ title }) => title)
  await terminal.line(line(titles, text => terminal.colors.dim(text)))
  for (const [n, row] of rows.entries()) {
    const cells = kept.map(column => column.cells[n])
    await terminal.line(line(cells, (text, i) => columns[i].paint?.(text, row) ?? text))
  }
}

const NARROWEST = 8

interface Measured<T> {
  readonly column: Column<T>
  readonly cells: readonly string[]
  readonly width: number
}

interface Fitted<T> {
  readonly kept: readonly Measured<T>[]
  readonly fitted: readonly number[]
}

/** Cuts columns first, then leaves out columns from the right, until the table fits or nothing more can be done. */
function withinColumns<T>(all: readonly Measured<T>[], columns: number | undefined): Fitted<T> {
  if (columns === undefined) return { kept: all, fitted: all.map(({ width }) => width) }
  let kept = all
  for (;;) {
    const fitted = cutWidths(kept, columns)
    const last = kept.findLast(({ column }) => column.fit === 'leave out')
    if (totalOf(fitted) <= columns || last === undefined) return { kept, fitted }
    kept = kept.filter(measured => measured !== last)
  }
}

/** Shortens the widest column that may be cut, repeatedly. */
function cutWidths<T>(measured: readonly Measured<T>[], columns: number): readonly number[] {
  const fitted = measured.map(({ width }) => width)
  for (;;) {
    const room = fitted.map((width, i) => ((measured[i].column.fit ?? 'cut') === 'cut' ? width : 0))
    const widest = room.indexOf(Math.max(...room))
    const over = totalOf(fitted) - columns
    if (over <= 0 || room[widest] <= NARROWEST) return fitted
    fitted[widest] = Math.max(NARROWEST, fitted[widest] - over)
  }
}

function totalOf(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width, 0) + GAP.length * (widths.length - 1)
}

/** Prints one `name  value` pair per line; pairs without a value are left out. */
export async function printFields(
  terminal: Terminal,
  fields: readonly (readonly [name: string, value: string | undefined])[],
): Promise<void> {
  const given = fields.filter((field): field is readonly [string, string] => field[1] !== undefined)
  const width = Math.max(...given.map(([name]) => name.length))
  for (const [name, value] of given) {
    await terminal.line(`${terminal.colors.dim(name.padEnd(width))}${GAP}${value}`)
  }
}
