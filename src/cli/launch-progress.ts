import type { ProgressOutput } from '../launch.ts'
import { safeText } from './safe-text.ts'

/** What a view that is drawn again writes first: it goes up and clears what it drew. */
const DRAWN_AGAIN = /^\u001b\[\d+A\u001b\[J/

/** Where the progress of a launch is shown. Errors and issues in it are texts of workers and models. */
export function progressOutput(stream: NodeJS.WriteStream = process.stderr): ProgressOutput {
  return {
    isTTY: stream.isTTY === true,
    // Of now: a window may be resized.
    get columns() {
      return stream.columns
    },
    write: text => stream.write(stream.isTTY === true ? safeView(text) : `${safeText(text.slice(0, -1))}\n`),
  }
}

/** Outside of a terminal each step is a line; a view has several, in which only names are somebody else's. */
function safeView(text: string): string {
  const [control = ''] = DRAWN_AGAIN.exec(text) ?? []
  return `${control}${text.slice(control.length).split('\n').map(safeText).join('\n')}`
}
