import { statusWordOf, type Tone } from '../core/vocabulary.ts'
import { safeText } from './safe-text.ts'
import type { Column } from './table.ts'
import type { Terminal } from './terminal.ts'

const COLOR: Readonly<Record<Tone, 'green' | 'red' | 'cyan' | 'yellow'>> = {
  good: 'green',
  bad: 'red',
  busy: 'cyan',
  waiting: 'yellow',
  neutral: 'yellow',
}

/** A status that the API names, as the word that people see, in its colour. */
export function statusText(colors: Terminal['colors'], name: string): string {
  return paint(colors, name, safeText(statusWordOf(name).word))
}

/** A table column of statuses. */
export function statusColumn<T>(colors: Terminal['colors'], nameOf: (row: T) => string): Column<T> {
  return {
    title: 'STATUS',
    text: row => statusWordOf(nameOf(row)).word,
    paint: (text, row) => paint(colors, nameOf(row), text),
    fit: 'whole',
  }
}

function paint(colors: Terminal['colors'], name: string, text: string): string {
  return colors[COLOR[statusWordOf(name).tone]](text)
}
