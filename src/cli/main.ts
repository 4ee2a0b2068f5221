#!/usr/bin/env node
import { runCli } from './program.ts'
import { processTerminal } from './terminal.ts'

const terminal = processTerminal()
// As one line, as all else that a person is told beside the answer.
process.removeAllListeners('warning')
process.on('warning', ({ message }) => terminal.note(`warning: ${message}`))
process.exitCode = await runCli(process.argv.slice(2), terminal)
