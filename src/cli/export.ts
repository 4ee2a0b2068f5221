import { createWriteStream, renameSync, rmSync } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import type { Command } from 'commander'
import { AnnalsError } from '../index.ts'
import { watched } from './bundle-file.ts'
import { type Context, usageError, withExamples, withStore } from './command.ts'
import { lookUpRun } from './run-lookup.ts'
import { safeText } from './safe-text.ts'
import { shellWord } from './shell-word.ts'
import { reading, type StoreOptions } from './store-access.ts'

interface Options extends StoreOptions {
  readonly output?: string
}

export function addExport(program: Command, context: Context): void {
  const command = program
    .command('export')
    .argument('<run>', 'id of the run')
    .description('write a run as a bundle: a file that can be verified alone and imported elsewhere')
    .option('-o, --output <file>', 'the file to write; without it, the bundle goes to stdout')
    .action((runId: string, options: Options) => exportRun(runId, options, context))
  withStore(command)
  withExamples(command, [
    { type: 'export nightly-42 -o nightly-42.bundle', for: 'into a file' },
    { type: 'export nightly-42 | gzip > nightly-42.bundle.gz', for: 'through a pipe' },
  ])
}

async function exportRun(runId: string, options: Options, { terminal }: Context): Promise<void> {
  const { output } = options
  if (output === undefined && terminal.columns !== undefined) {
    throw usageError('a bundle is not for a terminal: add -o FILE, or redirect it with > FILE')
  }
  await reading(options, terminal, async source => {
    await lookUpRun(source, runId)
    const bundle = watched(terminal, 'exported', source.exportRun(runId))
    if (output === undefined) {
      for await (const bytes of bundle) await terminal.raw(bytes)
      return
    }
    await writeWhole(output, bundle)
    const file = safeText(shellWord(output))
    terminal.note(`exported to ${safeText(output)}; \`annals verify-bundle ${file}\` verifies it`)
  })
}

/** Renames the file when it is complete, so an interrupted export leaves no part of a bundle under that name. */
async function writeWhole(path: string, chunks: AsyncIterable<Uint8Array>): Promise<void> {
  const unfinished = `${path}.${process.pid}.part`
  const remove = (): void => rmSync(unfinished, { force: true })
  process.once('exit', remove)
  try {
    await pipeline(chunks, createWriteStream(unfinished, { flush: true }))
    renameSync(unfinished, path)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (error instanceof AnnalsError || code === undefined) throw error
    throw new AnnalsError(
      'IO_ERROR',
      `cannot write ${path}: ${code === 'ENOENT' ? 'its folder does not exist' : message}`,
      { path },
      error,
    )
  } finally {
    process.off('exit', remove)
    remove()
  }
}
