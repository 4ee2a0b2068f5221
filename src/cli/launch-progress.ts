import type { ProgressOutput } from '../launch.ts'
import { safeText } from './safe-text.ts'

/** The sequence that moves the cursor up and clears the view before it is drawn again. */
const DRAWN_AGAIN = /^\u001b\[\d+A\u001b\[J/

/** The output for the progress of a launch. Escapes it, because it contains texts of workers and models. */
export function progressOutput(stream: NodeJS.WriteStream = process.stderr): ProgressOutput {
  return {
    isTTY: stream.isTTY === true,
    // Read each time, because a window may be resized.
    get columns() {
      return stream.columns
    },
    write: text => stream.write(stream.isTTY === true ? safeView(text) : `${safeText(text.slice(0, -1))}\n`),
  }
}

/** Escapes each line of a view that has several. */
function safeView(text: string): string {
  const [control = ''] = DRAWN_AGAIN.exec(text) ?? []
  return `${control}${text.slice(control.length).split('\n').map(safeText).join('\n')}`
}
