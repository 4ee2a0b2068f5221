import { writeFileSync } from 'node:fs'
import { beforeAll, expect, test } from 'vitest'
import { annals, makeStore, newFolder, start } from './annals-command.ts'

/**
 * Most tests of the command run in a process that they share (`annals`). Each command must do the same in a process of its
 * own, as users start it.
 */

let data = ''
let bundle = ''
beforeAll(async () => {
  data = await makeStore()
  bundle = `${newFolder()}.bundle`
  const { stdout } = await annals(['export', 'nightly-1', '--data', data])
  writeFileSync(bundle, stdout)
})

/** One call for each command. `%` stands for options that name the store, and `BUNDLE` for a bundle. */
const CALLS: Readonly<Record<string, string>> = {
  runs: 'runs %',
  show: 'show nightly-1 %',
  events: 'events nightly-1 --json %',
  verify: 'verify %',
  replay: 'replay nightly-1 %',
  resume: 'resume nightly-1 %',
  snapshot: 'snapshot nightly-1 --at 5 %',
  traces: 'traces agent-1 %',
  export: 'export agent-1 %',
  import: 'import - %',
  'verify-bundle': 'verify-bundle BUNDLE',
  doctor: 'doctor %',
  bench: 'bench --seconds nothing',
  serve: 'serve --port 70000',
  token: 'token list %',
  demo: 'demo --server nowhere',
  telemetry: 'telemetry flush --url http://127.0.0.1:1 %',
  completion: 'completion bash',
  help: 'help runs',
}
/** The exit codes of the calls that fail. */
const FAILING: Readonly<Record<string, number>> = { resume: 1, import: 2, bench: 2, serve: 2, demo: 2 }

test('the table has a call for each command', async () => {
  const { stdout } = await annals(['--help'])
  const [, listed = ''] = /\nCommands:\n([\s\S]*?)\n\n/.exec(stdout) ?? []
  const names = [...listed.matchAll(/^ {2}([a-z-]+)/gm)].map(([, name]) => name)
  expect(names.sort()).toEqual(Object.keys(CALLS).sort())
})

test.each(Object.keys(CALLS))('%s does the same in a process of its own', async name => {
  const words = CALLS[name].replace('%', `--data ${data}`).replace('BUNDLE', bundle).split(' ')
  const input = 'no bundle'
  const apart = await start(words, { input }).ended
  const here = await annals(words, { input })
  expect(withoutFreeSpace(here)).toEqual(withoutFreeSpace(apart))
  expect(apart.code).toBe(FAILING[name] ?? 0)
})

/** Other programs write to the disk meanwhile, so the free space that `doctor` reports may differ. */
function withoutFreeSpace<T extends { readonly stdout: string }>(ended: T): T {
  return { ...ended, stdout: ended.stdout.replace(/[\d,]+ MB are free/, 'n MB are free') }
}
