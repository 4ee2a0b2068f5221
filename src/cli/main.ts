#!/usr/bin/env node
import { runCli } from './program.ts'
import { safeText } from './safe-text.ts'
import { processTerminal } from './terminal.ts'

const terminal = processTerminal()
// Node prints a warning on several lines; other notes of this program have one.
process.removeAllListeners('warning')
process.on('warning', ({ message }) => terminal.note(`warning: ${safeText(message)}`))
process.exitCode = await runCli(process.argv.slice(2), terminal)
