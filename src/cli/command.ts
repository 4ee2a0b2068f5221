import { type Command, InvalidArgumentError, Option } from 'commander'
import { AnnalsError } from '../index.ts'
import type { ExitCode } from './exit-codes.ts'
import type { StoreOptions } from './store-access.ts'
import type { Terminal } from './terminal.ts'

/** The environment that a command runs in. */
export interface Context {
  readonly terminal: Terminal
  /**
   * Aborts on the first Ctrl-C. A command that calls this must end by itself then; without the call, Ctrl-C ends the process
   * at once.
   */
  interruption(): AbortSignal
  /** Sets the exit code of the process; the last call wins. */
  end(code: ExitCode): void
}

export interface Example {
  /** The arguments, without `annals`. */
  readonly type: string
  readonly for: string
}

/** Adds examples at the end of the command's help. */
export function withExamples(command: Command, examples: readonly Example[]): Command {
  const width = Math.max(...examples.map(({ type }) => type.length))
  const lines = examples.map(({ type, for: purpose }) => `  annals ${type.padEnd(width)}  # ${purpose}`)
  return command.addHelpText('after', `\nExamples:\n${lines.join('\n')}`)
}

export function dataOption(): Option {
  const option = new Option('--data <dir>', 'folder of the store').env('ANNALS_DATA').default('./.annals')
  return option.argParser((text: string): string => {
    if (text !== '') return text
    throw usageError('--data is empty; give the folder of a store')
  })
}

export function serverOption(description: string): Option {
  const example = 'http://127.0.0.1:8765'
  return new Option('--server <url>', description)
    .env('ANNALS_SERVER')
    .argParser(address('--server', /^https?:\/\//i, example))
}

/** Checks only how an address begins; the connection reports any other problem. */
function address(name: string, pattern: RegExp, example: string): (text: string) => string {
  return text => {
    if (pattern.test(text)) return text
    throw usageError(`${name} must be an address such as ${example}, not ${JSON.stringify(text)}`)
  }
}

/** The driver also accepts the folder of a socket. */
const POSTGRES = /^(postgres(ql)?:\/\/|socket:|\/)/i

/** Adds the options that name a store, without those for a server. */
export function withStoreOf(command: Command): Command {
  return command
    .addOption(dataOption())
    .addOption(
      new Option('--postgres <url>', 'a store on PostgreSQL instead of a folder')
        .env('ANNALS_POSTGRES')
        .argParser(address('--postgres', POSTGRES, 'postgres://localhost/runs')),
    )
    .addOption(new Option('--schema <name>', 'schema on PostgreSQL (default: annals)'))
    .addOption(
      new Option('--tenant <name>', 'tenant that owns the runs').env('ANNALS_TENANT').default('default'),
    )
}

/** Adds the options that name a store or the server that has it. */
export function withStore(command: Command): Command {
  return withStoreOf(command)
    .addOption(serverOption('a running server instead of a folder'))
    .addOption(tokenOption())
}

export function tokenOption(): Option {
  const description = 'token for the server; prefer ANNALS_TOKEN, which other users of the machine cannot see'
  return new Option('--token <token>', description).env('ANNALS_TOKEN')
}

export function withJson(command: Command): Command {
  return command.option('--json', 'print JSON for programs')
}

export interface Json {
  readonly json?: boolean
}

export type Read = StoreOptions & Json

/** Parses a whole number within bounds, both inclusive. */
export function wholeNumber(
  name: string,
  min: number,
  max: number = Number.MAX_SAFE_INTEGER,
): (text: string) => number {
  return text => {
    const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
    if (Number.isSafeInteger(value) && value >= min && value <= max) return value
    const upTo = max === Number.MAX_SAFE_INTEGER ? `${min} or more` : `from ${min} to ${max}`
    throw usageError(`${name} must be a whole number, ${upTo}, not ${JSON.stringify(text)}`)
  }
}

/** An error that ends the process with exit code 2. */
export function usageError(message: string, details: Readonly<Record<string, unknown>> = {}): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', message, details)
}

/** An option that takes one of a few words, in upper or lower case, or another name of that word. */
export function wordOption(
  flags: string,
  description: string,
  words: readonly string[],
  otherNames: Readonly<Record<string, string>> = {},
): Option {
  const option = new Option(flags, description).choices(words)
  return option.argParser((text: string): string => {
    const isGiven = (name: string): boolean => name.toLowerCase() === text.toLowerCase()
    const word = words.find(isGiven) ?? Object.entries(otherNames).find(([name]) => isGiven(name))?.[1]
    if (word === undefined) throw new InvalidArgumentError(`Allowed choices are ${words.join(', ')}.`)
    return word
  })
}

/** Collects the values of an option that may be given several times. */
export function collected(value: string, before: readonly string[]): readonly string[] {
  return [...before, value]
}
