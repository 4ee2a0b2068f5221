import { readFileSync } from 'node:fs'
import { Command, CommanderError } from 'commander'
import { AnnalsError } from '../index.ts'
import type { Context } from './command.ts'
import { COMMANDS } from './commands.ts'
import { EXIT, type ExitCode, exitCodeOf } from './exit-codes.ts'
import { safeText } from './safe-text.ts'
import type { Terminal } from './terminal.ts'

/** Runs one command and returns the exit code of the process. */
export async function runCli(args: readonly string[], terminal: Terminal): Promise<ExitCode> {
  const interrupted = new AbortController()
  let isHandled = false
  let ended: ExitCode = EXIT.ok
  const onInterrupt = (): void => {
    // A second Ctrl-C ends the process even if the command is still finishing.
    if (!isHandled || interrupted.signal.aborted) process.exit(EXIT.interrupted)
    interrupted.abort()
  }
  process.on('SIGINT', onInterrupt).on('SIGTERM', onInterrupt)
  const context: Context = {
    terminal,
    interruption: () => {
      isHandled = true
      return interrupted.signal
    },
    end: code => {
      ended = code
    },
  }
  try {
    await programOf(context).parseAsync([...args], { from: 'user' })
    return ended
  } catch (error) {
    return report(error, terminal)
  } finally {
    process.off('SIGINT', onInterrupt).off('SIGTERM', onInterrupt)
  }
}

/** All commands with their options. */
function programOf(context: Context): Command {
  const { terminal } = context
  const program = new Command('annals')
    .description('A database for runs: inspect, verify, resume and export them.')
    .version(versionOf(), '-v, --version')
    .exitOverride()
    .configureOutput({
      writeOut: text => void terminal.raw(text),
      writeErr: text => noteLines(terminal, text.trimEnd()),
      outputError: (text, write) => write(safeRefusal(text)),
    })
    .showHelpAfterError('Add --help to see the options.')
    .addHelpText('after', AFTER_HELP)
  for (const add of COMMANDS) add(program, context)
  return program
}

const AFTER_HELP = `
Start here:
  annals demo                    runs a launch, kills it and resumes it; the store is ./.annals
  annals runs                    lists the runs of the store
  annals serve                   serves the store and a web page on http://127.0.0.1:8765
  annals <command> --help        options and examples

Exit codes: 0 success · 1 a problem was found, or the command failed · 2 usage error · 3 not found ·
4 the store cannot be opened or reached · 70 internal error (a bug in Annals) · 130 interrupted ·
141 the output was closed`

function versionOf(): string {
  const file = new URL('../../package.json', import.meta.url)
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version
}

function report(error: unknown, terminal: Terminal): ExitCode {
  // The parser of options has printed its message.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage
  const { red } = terminal.noteColors
  if (error instanceof AnnalsError) {
    terminal.note(`${red('annals:')} ${safeText(error.message)}`)
    return exitCodeOf(error.code)
  }
  const { message, stack } = error instanceof Error ? error : new Error(String(error))
  terminal.note(`${red('annals:')} ${safeText(message)}`)
  terminal.note('This is a bug in Annals. Set ANNALS_DEBUG=1 to see where.')
  if (terminal.env['ANNALS_DEBUG'] === '1' && stack !== undefined) noteLines(terminal, stack)
  return EXIT.internal
}

function noteLines(terminal: Terminal, text: string): void {
  for (const line of text.split('\n')) terminal.note(line)
}

/** Escapes what the user typed, which the parser of options quotes. Its suggestion stays on a line of its own. */
function safeRefusal(text: string): string {
  const [, refusal, suggestion = ''] = /^(.*?)(\n\(Did you mean [^\n]*\?\))?$/s.exec(text.trimEnd()) ?? []
  return `${safeText(refusal ?? text)}${suggestion}`
}
