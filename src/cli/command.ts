import { type Command, InvalidArgumentError, Option } from 'commander'
import { AnnalsError } from '../index.ts'
import type { ExitCode } from './exit-codes.ts'
import type { StoreOptions } from './store.ts'
import type { Terminal } from './terminal.ts'

/** What every command is given. */
export interface Context {
  readonly terminal: Terminal
  /** For a command that ends well when it is interrupted: without asking for it, Ctrl-C ends the process at once. */
  interruption(): AbortSignal
  end(code: ExitCode): void
}

export interface Example {
  /** What to type, without `annals`. */
  readonly type: string
  readonly for: string
}

/** The help of a command ends with how it is used. */
export function withExamples(command: Command, examples: readonly Example[]): Command {
  const width = Math.max(...examples.map(({ type }) => type.length))
  const lines = examples.map(({ type, for: what }) => `  annals ${type.padEnd(width)}  # ${what}`)
  return command.addHelpText('after', `\nExamples:\n${lines.join('\n')}`)
}

export function dataOption(): Option {
  const option = new Option('--data <dir>', 'folder of the store').env('ANNALS_DATA').default('./.annals')
  return option.argParser((text: string): string => {
    if (text !== '') return text
    throw new UsageError('--data is empty: it names the folder of a store')
  })
}

export function serverOption(description: string): Option {
  const example = 'http://127.0.0.1:8765'
  return new Option('--server <url>', description)
    .env('ANNALS_SERVER')
    .argParser(address('--server', /^https?:\/\//i, example))
}

/** An option that is an address; what is wrong with the rest of it is said by who connects to it. */
function address(name: string, pattern: RegExp, example: string): (text: string) => string {
  return text => {
    if (pattern.test(text)) return text
    throw new UsageError(`${name} must be an address such as ${example}, not ${JSON.stringify(text)}`)
  }
}

/** The driver also takes the folder of a socket. */
const POSTGRES = /^(postgres(ql)?:\/\/|socket:|\/)/i

/** What names a store, without the server that may have it. */
export function withStoreOf(command: Command): Command {
  return command
    .addOption(dataOption())
    .addOption(
      new Option('--postgres <url>', 'a store on PostgreSQL instead')
        .env('ANNALS_POSTGRES')
        .argParser(address('--postgres', POSTGRES, 'postgres://localhost/runs')),
    )
    .addOption(new Option('--schema <name>', 'schema on PostgreSQL (default: annals)'))
    .addOption(new Option('--tenant <name>', 'whose runs').env('ANNALS_TENANT').default('default'))
}

/** What names the store that a command works on. */
export function withStore(command: Command): Command {
  return withStoreOf(command)
    .addOption(serverOption('a running server instead'))
    .addOption(new Option('--token <token>', 'for that server; better in ANNALS_TOKEN').env('ANNALS_TOKEN'))
}

export function withJson(command: Command): Command {
  return command.option('--json', 'for programs: JSON instead of a table')
}

export interface Json {
  readonly json?: boolean
}

export type Read = StoreOptions & Json

/** An option that is a whole number. */
export function wholeNumber(
  name: string,
  min: number,
  max: number = Number.MAX_SAFE_INTEGER,
): (text: string) => number {
  return text => {
    const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
    if (Number.isSafeInteger(value) && value >= min && value <= max) return value
    const upTo = max === Number.MAX_SAFE_INTEGER ? `${min} or more` : `from ${min} to ${max}`
    throw new UsageError(`${name} must be a whole number, ${upTo}, not ${JSON.stringify(text)}`)
  }
}

/** Typed wrong, in a way that the parser of options can't know. */
class UsageError extends AnnalsError {
  constructor(message: string) {
    super('INVALID_ARGUMENT', message)
  }
}

/** An option that takes one of a few words, in any case. */
export function wordOption(flags: string, description: string, words: readonly string[]): Option {
  const option = new Option(flags, description).choices(words)
  return option.argParser((text: string): string => {
    const word = words.find(known => known.toLowerCase() === text.toLowerCase())
    if (word === undefined) throw new InvalidArgumentError(`Allowed choices are ${words.join(', ')}.`)
    return word
  })
}

/** An option that may be given several times. */
export function collected(value: string, before: readonly string[]): readonly string[] {
  return [...before, value]
}
