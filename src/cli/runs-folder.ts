import { join } from 'node:path'
import { type Command, Option } from 'commander'

/** Where launches have their files: beside the store, unless somebody says where. */
export function withRunsFolder(command: Command): Command {
  return command.addOption(
    new Option('--runs <dir>', 'folder of launches (default: runs in the folder of the store)').env(
      'ANNALS_RUNS',
    ),
  )
}

export function runsFolderOf({ data, runs }: { readonly data: string; readonly runs?: string }): string {
  return runs ?? join(data, 'runs')
}
