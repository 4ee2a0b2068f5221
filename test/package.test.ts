import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'

/**
 * The size of an installation. The limits are about a tenth above the current size, so a new dependency or files that
 * are packed by mistake fail this test.
 */
const PACKED_BYTES_MAX = 1_300_000
const UNPACKED_BYTES_MAX = 4_500_000
const FILES_MAX = 1_300
/** Without the package itself. */
const INSTALLED_PACKAGES = [
  '@asteasolutions/zod-to-openapi',
  '@hono/node-server',
  '@hono/zod-openapi',
  '@hono/zod-validator',
  'commander',
  'hono',
  'openapi3-ts',
  'picocolors',
  'yaml',
  'zod',
]

const root = fileURLToPath(new URL('..', import.meta.url))

interface Packed {
  readonly size: number
  readonly unpackedSize: number
  readonly files: readonly { readonly path: string }[]
}

interface LockedPackage {
  readonly dev?: boolean
  readonly devOptional?: boolean
  readonly optional?: boolean
  readonly peer?: boolean
}

function jsonOf(path: string): unknown {
  return JSON.parse(readFileSync(`${root}${path}`, 'utf8'))
}

describe('the packed package', () => {
  const output = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: root,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const [packed] = JSON.parse(output) as [Packed]
  const paths = packed.files.map(({ path }) => path)

  test(`is smaller than ${PACKED_BYTES_MAX} bytes, and than ${UNPACKED_BYTES_MAX} once unpacked`, () => {
    expect(packed.size).toBeLessThan(PACKED_BYTES_MAX)
    expect(packed.unpackedSize).toBeLessThan(UNPACKED_BYTES_MAX)
  })

  test(`has fewer than ${FILES_MAX} files`, () => {
    expect(packed.files.length).toBeLessThan(FILES_MAX)
  })

  test('holds the built entries, and neither sources nor tests', () => {
    expect(paths).toContain('dist/index.js')
    expect(paths.filter(path => /^(src|test|bench|scripts|temp)\/|\.test\./.test(path))).toEqual([])
  })
})

describe('an installation for production', () => {
  test('brings exactly these packages', () => {
    const { packages } = jsonOf('package-lock.json') as {
      readonly packages: Readonly<Record<string, LockedPackage>>
    }
    const installed = Object.entries(packages)
      .filter(
        ([path, { dev, devOptional, optional, peer }]) =>
          path !== '' && !(dev || devOptional || optional || peer),
      )
      .map(([path]) => path.replace(/^node_modules\//, ''))
    expect(installed.sort()).toEqual(INSTALLED_PACKAGES)
  })

  test('asks for exactly these dependencies', () => {
    const { dependencies } = jsonOf('package.json') as {
      readonly dependencies: Readonly<Record<string, string>>
    }
    expect(Object.keys(dependencies).sort()).toEqual([
      '@hono/node-server',
      '@hono/zod-openapi',
      'commander',
      'hono',
      'picocolors',
      'zod',
    ])
  })
})
