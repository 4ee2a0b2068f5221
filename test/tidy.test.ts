import { readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'

/**
 * Checks conventions of the source. Each guard is a function over files. It must pass on the tree and fail on planted
 * violations, because a guard that can't fail is useless.
 */

/** The folders that each folder of src may import, besides its own files. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  core: [],
  disk: ['core'],
  engine: ['core'],
  embedded: ['core', 'disk', 'engine'],
  postgres: ['core', 'engine'],
  primitives: ['core', 'engine'],
  ledger: ['core', 'disk', 'engine', 'primitives'],
  bundle: ['core', 'engine', 'primitives', 'ledger'],
  telemetry: ['core', 'disk', 'engine'],
  launch: ['core', 'disk', 'engine', 'primitives', 'ledger', 'telemetry'],
  testing: ['core', 'engine'],
  server: ['core', 'ledger', 'primitives', 'launch', 'telemetry'],
  // Adapters for other frameworks. Each is a program on the library, with its framework as an optional peer.
  integrations: ['core'],
  // Code that runs in browsers. It may use these folders only for types and for code without Node, which
  // test/client-purity.test.ts checks.
  client: ['core', 'engine', 'primitives', 'ledger'],
  // The command is a program on the library. It uses the public entries, and from the rest only the vocabulary and
  // small functions of core.
  cli: ['core'],
}

/** The entries that a folder may import, as other programs do. */
const ENTRIES: Readonly<Record<string, readonly string[]>> = {
  // The paths of the server contain namespaces.
  server: ['src/annals.ts', 'src/engine/keys.ts'],
  // It opens a database on a user's storage engine.
  testing: ['src/annals.ts'],
  integrations: ['src/index.ts'],
  cli: ['src/index.ts', 'src/postgres.ts', 'src/launch.ts', 'src/server.ts', 'src/client.ts'],
}

/**
 * The suites for databases and for ledgers must work with any engine. They may import only the public API, the
 * simulated clock and their own files. They also share the class `Suite` and the functions that make events.
 */
const PUBLIC_ONLY: readonly string[] = ['src/testing/annals-suite/', 'src/testing/ledger-suite/']
const PUBLIC_ONLY_MAY_IMPORT: readonly string[] = [
  'src/index.ts',
  'src/testing/simulated-clock.ts',
  'src/testing/annals-suite/suite.ts',
  'src/testing/ledger-suite/events.ts',
]

/**
 * Files that other files of their folder must not import, because primitives do not depend on each other. They may
 * import the shared parts of the folder.
 */
const NO_SIBLINGS: Readonly<Record<string, readonly string[]>> = {
  primitives: ['kv-store', 'event-log', 'state-cell', 'state-machine', 'trace-store', 'run-index'],
}

/** The modules that a folder may import from outside. Other folders may import `node:` modules only. */
const OUTSIDE: Readonly<Record<string, readonly string[]>> = {
  core: ['node:buffer', 'node:crypto', 'node:util'],
  postgres: ['pg', 'node:*'],
  client: [],
  launch: ['annals', 'node:*'],
  server: ['hono', 'hono/*', '@hono/node-server', '@hono/zod-openapi', 'annals', 'annals/launch', 'node:*'],
  'src/postgres.ts': ['annals'],
  testing: ['vitest', 'annals', 'node:*'],
  cli: ['commander', 'picocolors', 'node:*'],
  integrations: [
    'annals',
    'abstract-level',
    'keyv',
    '@langchain/core/runnables',
    '@langchain/langgraph-checkpoint',
    'openworkflow',
    'openworkflow/internal',
    'node:*',
  ],
}
const OUTSIDE_BY_DEFAULT: readonly string[] = ['node:*']

/** A longer file must be divided. */
const LINES_MAX = 500

/** Names that do not describe their content. */
const EMPTY_NAMES: readonly string[] = [
  'util',
  'utils',
  'helper',
  'helpers',
  'manager',
  'types',
  'common',
  'misc',
]

const KEBAB_CASE = /^[a-z0-9]+(-[a-z0-9]+)*(\.(test|soak|config|d))*\.(ts|js|mjs)$/

interface File {
  readonly path: string
  readonly text: string
}
type Guard = (files: readonly File[]) => string[]

const isSource = (path: string): boolean => path.startsWith('src/')
const isTest = (path: string): boolean => /\.(test|soak)\.ts$/.test(path)
/** src/core/value.ts → core; an entry such as src/index.ts → undefined. */
const folderOf = (path: string): string | undefined => /^src\/([^/]+)\//.exec(path)?.[1]

const IMPORT =
  /(?:^|\n)\s*(?:import|export)\b(?:[^'"`;=(]*\bfrom)?\s*['"]([^'"\n]+)['"]|\bimport\(\s*['"]([^'"\n]+)['"]/g

function importsOf(file: File): string[] {
  return [...file.text.matchAll(IMPORT)].map(match => match[1] ?? match[2] ?? '')
}

const importTable: Guard = files => {
  const problems: string[] = []
  for (const file of files) {
    const folder = folderOf(file.path)
    // Entries may import anything, and so may tests, which compare layers with each other.
    if (folder === undefined || isTest(file.path)) continue
    const allowed = MAY_IMPORT[folder]
    if (allowed === undefined) {
      problems.push(`${file.path}: folder ${folder} has no row in the import table`)
      continue
    }
    for (const specifier of importsOf(file)) {
      if (!specifier.startsWith('.')) continue
      const target = posix.join(dirname(file.path), specifier)
      const suite = PUBLIC_ONLY.find(start => file.path.startsWith(start))
      if (suite !== undefined) {
        if (!target.startsWith(suite) && !PUBLIC_ONLY_MAY_IMPORT.includes(target)) {
          problems.push(`${file.path}: may use the public API alone, not ${target}`)
        }
        continue
      }
      if (ENTRIES[folder]?.includes(target)) continue
      const targetFolder = folderOf(target)
      if (targetFolder === folder) {
        const alone = NO_SIBLINGS[folder] ?? []
        if (alone.includes(basename(target, '.ts'))) {
          problems.push(`${file.path}: imports its sibling ${target}`)
        }
      } else if (targetFolder === undefined || !allowed.includes(targetFolder)) {
        problems.push(`${file.path}: ${folder} may not import ${target}`)
      }
    }
  }
  return problems
}

const outsideImports: Guard = files => {
  const problems: string[] = []
  for (const file of files) {
    if (!isSource(file.path) || isTest(file.path)) continue
    const allowed = OUTSIDE[folderOf(file.path) ?? file.path] ?? OUTSIDE_BY_DEFAULT
    for (const specifier of importsOf(file)) {
      if (specifier.startsWith('.') || allowed.includes(specifier)) continue
      const family = specifier.slice(0, specifier.search(/[:/]/) + 1)
      if (family !== '' && allowed.includes(`${family}*`)) continue
      problems.push(`${file.path}: may not import ${specifier}`)
    }
  }
  return problems
}

const size: Guard = files =>
  files
    .filter(file => isSource(file.path) && file.text.split('\n').length - 1 > LINES_MAX)
    .map(file => `${file.path}: more than ${LINES_MAX} lines`)

const names: Guard = files =>
  files.flatMap(({ path }) => {
    const name = basename(path)
    if (!KEBAB_CASE.test(name)) return [`${path}: not kebab-case`]
    return EMPTY_NAMES.includes(name.slice(0, name.indexOf('.'))) ? [`${path}: a name that says nothing`] : []
  })

/** Returns one problem with its line number for each matching line. */
function eachLine(files: readonly File[], pattern: RegExp, problem: string): string[] {
  return files.flatMap(file =>
    file.text
      .split('\n')
      .flatMap((line, i) => (pattern.test(line) ? [`${file.path}:${i + 1}: ${problem}`] : [])),
  )
}

const anyType: Guard = files =>
  eachLine(files, /(:|<|\bas|\||&|=|,)\s*any(\[\])*\s*([,;)>\]=|&{]|$)/, 'the type any')

/**
 * Source files may import `annals` and `annals/launch`, the package's own entries, only for types. Public signatures
 * use them for types of another entry, so that each type is exported by one entry only.
 */
const ownName: Guard = files =>
  eachLine(
    files.filter(file => isSource(file.path) && !isTest(file.path)),
    /^(import|export) (?!type\b).*from 'annals/,
    'only types come by the name of the package',
  )

const machinePaths: Guard = files =>
  eachLine(files, /["'`\s(]\/(work|home|root|Users)\//, 'a path of one machine')

const unfinished: Guard = files => eachLine(files, /\b(TODO|FIXME|XXX)\b/, 'unfinished business')

/** Refuses `.only`, which hides all other tests, and a skip without a `// reason:` on its line or the line above. */
const skips: Guard = files =>
  files.flatMap(file => {
    const lines = file.text.split('\n')
    return lines.flatMap((line, i) => {
      if (/\b(test|it|describe)(\.\w+)*\.only\b/.test(line)) return [`${file.path}:${i + 1}: .only`]
      if (!/\b(test|it|describe)(\.\w+)*\.(skip|skipIf|runIf|todo)\b/.test(line)) return []
      const reasoned = /\/\/ reason: \S/.test(`${lines[i - 1] ?? ''}\n${line}`)
      return reasoned ? [] : [`${file.path}:${i + 1}: a skip without "// reason: …"`]
    })
  })

const root = fileURLToPath(new URL('..', import.meta.url))
const tree: readonly File[] = ['src', 'test']
  .flatMap(folder =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map(path => `${folder}/${path}`),
  )
  .filter(path => /\.(ts|mts|cts|js|mjs|cjs)$/.test(path) && !path.includes('node_modules'))
  .map(path => ({ path, text: readFileSync(join(root, path), 'utf8') }))
/** Without this file, which contains the planted violations. */
const treeWithoutTidy = tree.filter(file => file.path !== 'test/tidy.test.ts')

interface Case {
  readonly guard: Guard
  readonly property: string
  /** Files that the guard must refuse, one at a time. */
  readonly planted: readonly (readonly [path: string, text: string])[]
  /** Similar files that the guard must accept. */
  readonly fine: readonly (readonly [path: string, text: string])[]
}

const CASES: Readonly<Record<string, Case>> = {
  importTable: {
    guard: importTable,
    property:
      'P2: a folder imports only the folders that its row in the table names, and no primitive another',
    planted: [
      ['src/core/a.ts', "import { x } from '../engine/storage.ts'"],
      ['src/core/a.ts', "import type { x } from '../embedded/tree.ts'"],
      ['src/core/a.ts', "import {\n  x,\n  y,\n} from '../engine/storage.ts'"],
      ['src/core/a.ts', "export * from '../index.ts'"],
      ['src/core/a.ts', "const x = await import('../engine/storage.ts')"],
      ['src/core/a.ts', "import '../engine/storage.ts'"],
      ['src/engine/a.ts', "import { x } from '../embedded/tree.ts'"],
      ['src/disk/a.ts', "import { x } from '../engine/storage.ts'"],
      ['src/launch/a.ts', "import { x } from '../embedded/tree.ts'"],
      ['src/engine/a.ts', "import { x } from '../primitives/kv.ts'"],
      ['src/embedded/a.ts', "import { x } from '../testing/random.ts'"],
      ['src/testing/a.ts', "import { x } from '../embedded/tree.ts'"],
      ['src/postgres/a.ts', "import { x } from '../embedded/tree.ts'"],
      ['src/primitives/kv.ts', "import { x } from './event-log.ts'"],
      ['src/primitives/kv.ts', "import { x } from '../embedded/tree.ts'"],
      ['src/unknown/a.ts', ''],
      ['src/cli/a.ts', "import { x } from '../ledger/ledger.ts'"],
      ['src/cli/a.ts', "import { x } from '../testing.ts'"],
      ['src/testing/a.ts', "import { x } from '../index.ts'"],
      ['src/ledger/a.ts', "import { x } from '../server/app.ts'"],
      ['src/server/a.ts', "import { x } from '../embedded/tree.ts'"],
      ['src/testing/annals-suite/a.ts', "import { x } from '../../engine/keys.ts'"],
      ['src/testing/annals-suite/a.ts', "import { x } from '../random.ts'"],
      ['src/testing/ledger-suite/a.ts', "import { x } from '../../ledger/reduce.ts'"],
      ['src/testing/ledger-suite/a.ts', "import { x } from '../annals-suite/kv.ts'"],
    ],
    fine: [
      ['src/testing/annals-suite/a.ts', "import { x } from '../../index.ts'"],
      ['src/testing/annals-suite/a.ts', "import { x } from './suite.ts'"],
      ['src/testing/ledger-suite/a.ts', "import { x } from '../annals-suite/suite.ts'"],
      ['src/core/a.ts', "import { x } from './bytes.ts'"],
      ['src/server/a.ts', "import { x } from '../annals.ts'"],
      ['src/cli/a.ts', "import { x } from '../index.ts'"],
      ['src/engine/a.ts', "import { x } from '../core/bytes.ts'"],
      ['src/testing/a.ts', "import { x } from '../engine/keys.ts'"],
      ['src/index.ts', "export { x } from './embedded/tree.ts'"],
      ['src/core/a.test.ts', "import { x } from '../engine/storage.ts'"],
    ],
  },
  outsideImports: {
    guard: outsideImports,
    property: 'core does no I/O, and only the edges depend on a package',
    planted: [
      ['src/core/a.ts', "import { readFileSync } from 'node:fs'"],
      ['src/core/a.ts', "import { readFileSync } from 'fs'"],
      ['src/core/a.ts', "import { x } from 'vitest'"],
      ['src/embedded/a.ts', "import { x } from 'lmdb'"],
      ['src/index.ts', "import { x } from 'zod'"],
      ['src/embedded/a.ts', "import pg from 'pg'"],
      ['src/ledger/a.ts', "import { Hono } from 'hono'"],
      ['src/server/a.ts', "import { x } from '@hono/other'"],
      ['src/client/a.ts', "import { x } from 'node:buffer'"],
    ],
    fine: [
      ['src/server/a.ts', "import type { Context } from 'hono'"],
      ['src/core/a.ts', "import { hash } from 'node:crypto'"],
      ['src/embedded/a.ts', "import { readFileSync } from 'node:fs'"],
      ['src/testing/a.ts', "import { test } from 'vitest'"],
      ['src/core/a.ts', "export function kind(): string {\n  return 'lock'\n}"],
      ['src/core/a.ts', "export type Kind = 'file' | 'folder'"],
    ],
  },
  ownName: {
    guard: ownName,
    property: 'a source file imports nothing but types by the name of the package',
    planted: [
      ['src/server/a.ts', "import { open } from 'annals'"],
      ['src/launch/a.ts', "export { open } from 'annals'"],
    ],
    fine: [
      ['src/server/a.ts', "import type { Annals } from 'annals'"],
      ['src/server/a.test.ts', "import { open } from 'annals'"],
    ],
  },
  size: {
    guard: size,
    property: `no source file is over ${LINES_MAX} lines`,
    planted: [['src/core/a.ts', 'x\n'.repeat(LINES_MAX + 1)]],
    fine: [['src/core/a.ts', 'x\n'.repeat(LINES_MAX)]],
  },
  names: {
    guard: names,
    property: 'files are nouns in kebab-case',
    planted: [
      ['src/core/camelCase.ts', ''],
      ['src/core/Value.ts', ''],
      ['src/core/snake_case.ts', ''],
      ['src/core/utils.ts', ''],
      ['src/core/helpers.test.ts', ''],
      ['src/core/manager.ts', ''],
      ['src/core/types.ts', ''],
    ],
    fine: [
      ['src/core/canonical-json.test.ts', ''],
      ['src/buffer-methods.d.ts', ''],
      ['test/kill.soak.ts', ''],
    ],
  },
  anyType: {
    guard: anyType,
    property: 'no type is any',
    planted: [
      ['src/core/a.ts', 'function f(x: any) {}'],
      ['src/core/a.ts', 'const x: any = 1'],
      ['src/core/a.ts', 'const x = y as any'],
      ['src/core/a.ts', 'const x: Map<string, any> = y'],
      ['src/core/a.ts', 'const x: any[] = []'],
      ['src/core/a.ts', 'type X = any'],
    ],
    fine: [
      ['src/core/a.ts', '// in any order, as any engine would'],
      ['src/core/a.ts', 'const x: unknown = Promise.any([])'],
    ],
  },
  machinePaths: {
    guard: machinePaths,
    property: 'no file names a path of one machine',
    planted: [
      ['src/core/a.ts', "const path = '/work/x'"],
      ['test/a.test.ts', '// see /home/x/y'],
    ],
    fine: [['src/core/a.ts', "import { x } from './work/x.ts'"]],
  },
  unfinished: {
    guard: unfinished,
    property: 'nothing is left for later',
    planted: [['src/core/a.ts', '// TODO: more']],
    fine: [['src/core/a.ts', 'const todos = 1']],
  },
  skips: {
    guard: skips,
    property: 'no test runs alone, and none is skipped without a reason',
    planted: [
      ['test/a.test.ts', "test.only('x', () => {})"],
      ['test/a.test.ts', "describe.concurrent.only('x', () => {})"],
      ['test/a.test.ts', "it.skip('x', () => {})"],
      ['test/a.test.ts', "test.skipIf(true)('x', () => {})"],
    ],
    fine: [
      ['test/a.test.ts', "// reason: root reads everything\ntest.skipIf(isRoot)('x', () => {})"],
      ['src/core/a.ts', 'iterator.skip(1)'],
    ],
  },
}

describe('tidy', () => {
  test('the tree has files', () => {
    expect(tree.length).toBeGreaterThan(10)
  })

  for (const { guard, property, planted, fine } of Object.values(CASES)) {
    test(`${property}: holds on the tree`, () => {
      expect(guard(treeWithoutTidy)).toEqual([])
    })
    test.each(planted)(`${property}: refuses a planted %s %j`, (path, text) => {
      expect(guard([{ path, text }])).toHaveLength(1)
    })
    test.each(fine)(`${property}: accepts %s %j`, (path, text) => {
      expect(guard([{ path, text }])).toEqual([])
    })
  }
})
