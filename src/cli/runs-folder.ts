import { join } from 'node:path'
import { type Command, Option } from 'commander'

/** Adds the option for the folder with the files of launches. */
export function withRunsFolder(command: Command): Command {
  return command.addOption(
    new Option(
      '--runs <dir>',
      'folder with the files of launches (default: runs, in the folder of the store)',
    ).env('ANNALS_RUNS'),
  )
}

export function runsFolderOf({ data, runs }: { readonly data: string; readonly runs?: string }): string {
  return runs ?? join(data, 'runs')
}
