import { readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'

const DIST = join(dirname(dirname(fileURLToPath(import.meta.url))), 'dist')
const IMPORT = /(?:import|export)\b[^'"]*?from\s*['"]([^'"]+)['"]|import\s*\(?\s*['"]([^'"]+)['"]/g

/** All built files that `entry` imports, directly or not, and the modules that they import from outside. */
function reachedFrom(entry: string): {
  readonly files: readonly string[]
  readonly outside: readonly string[]
} {
  const files = new Set<string>()
  const outside = new Set<string>()
  const visit = (file: string): void => {
    if (files.has(file)) return
    files.add(file)
    for (const [, a, b] of readFileSync(file, 'utf8').matchAll(IMPORT)) {
      const specifier = a ?? b
      if (specifier.startsWith('.')) visit(resolve(dirname(file), specifier))
      else outside.add(specifier)
    }
  }
  visit(join(DIST, entry))
  return { files: [...files], outside: [...outside] }
}

describe('the client in a browser', () => {
  const { files, outside } = reachedFrom('client.js')

  test('imports nothing but its own files', () => {
    expect(files.length).toBeGreaterThan(5)
    expect(outside).toEqual([])
    // Proves that the check can fail, because the server does import other modules.
    expect(reachedFrom('server.js').outside).toContain('@hono/zod-openapi')
  })

  test('uses nothing that exists only in Node', () => {
    for (const file of files) {
      const code = readFileSync(file, 'utf8').replaceAll(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, '')
      expect(code.match(/\b(Buffer|process|setImmediate|require|__dirname)\b[.(]/)?.[0], file).toBeUndefined()
    }
  })
})
