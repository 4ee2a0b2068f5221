import { cutTo, safeText, widthOf } from './safe-text.ts'
import type { Terminal } from './terminal.ts'

export interface Column<T> {
  readonly title: string
  readonly text: (row: T) => string
  /** Colours what is shown; its width stays. */
  readonly paint?: (text: string, row: T) => string
  readonly alignRight?: boolean
}

const GAP = '  '

/** Rows in columns that line up; in a terminal, cut to its width. Whatever is in them is made harmless first. */
export async function printTable<T>(
  terminal: Terminal,
  rows: readonly T[],
  columns: readonly Column<T>[],
): Promise<void> {
  const cells = rows.map(row => columns.map(({ text }) => safeText(text(row))))
  const widths = columns.map(({ title }, i) =>
    cells.reduce((widest, line) => Math.max(widest, widthOf(line[i])), widthOf(title)),
  )
  const fitted = withinColumns(widths, terminal.columns)
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
    await terminal.line(line(cells[n], (text, i) => columns[i].paint?.(text, row) ?? text))
  }
}

const NARROWEST = 8

/** The widest column gives way, again and again, until all fit. */
function withinColumns(widths: readonly number[], columns: number | undefined): readonly number[] {
  const fitted = [...widths]
  if (columns === undefined) return fitted
  for (;;) {
    const total = fitted.reduce((sum, width) => sum + width, 0) + GAP.length * (fitted.length - 1)
    const widest = fitted.indexOf(Math.max(...fitted))
    if (total <= columns || fitted[widest] <= NARROWEST) return fitted
    fitted[widest] = Math.max(NARROWEST, fitted[widest] - (total - columns))
  }
}

/** Names and what they are, one a line. */
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
