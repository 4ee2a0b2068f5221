#!/usr/bin/env node
import { runCli } from './program.ts'
import { safeText } from './safe-text.ts'
import { processTerminal } from './terminal.ts'

const terminal = processTerminal()
// One line, as all other notes.
process.removeAllListeners('warning')
process.on('warning', ({ message }) => terminal.note(`warning: ${safeText(message)}`))
process.exitCode = await runCli(process.argv.slice(2), terminal)
