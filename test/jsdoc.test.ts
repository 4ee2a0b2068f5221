import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { Annals, Cells, Events, Kv, Machines, open, Runs, Traces } from '../src/index.ts'

/**
 * Every `@example` in the source runs, with an empty store as `db` and the id
 * of a run as `run`. What stands behind `// →` is what the line gives.
 */
const SOURCE = join(dirname(dirname(fileURLToPath(import.meta.url))), 'src')

interface Example {
  readonly name: string
  readonly code: string
}

/** The comments that have one, each with the line that it is about. */
function examplesOf(file: string): Example[] {
  const text = readFileSync(join(SOURCE, file), 'utf8')
  return [...text.matchAll(/^ *\/\*\*\n((?: *\*.*\n)*?) *\*\/\n *(.*)$/gm)].flatMap(
    ([, comment, subject]) => {
      const lines = comment.split('\n').map(line => line.replace(/^ *\* ?/, ''))
      const start = lines.indexOf('@example')
      if (start < 0) return []
      const name = /(\w+)[<(]/.exec(subject)?.[1] ?? subject
      return [{ name: `${relative('.', file)}: ${name}`, code: lines.slice(start + 1).join('\n') }]
    },
  )
}

/** `expression // → value` becomes an assertion. */
function asserted(code: string): string {
  return code.replace(/^(.*?) \/\/ → (.*)$/gm, (_, expression: string, value: string) => {
    const awaited = expression.trim().startsWith('await ') ? `(${expression.trim()})` : expression.trim()
    return `assert.deepEqual(${awaited}, ${value})`
  })
}

async function run({ code }: Example): Promise<void> {
  const db = await open({ memory: true })
  try {
    const body = `'use strict'; return (async () => {\n${asserted(code)}\n})()`
    // The examples are ours: they are code of this repository.
    const program = new Function('db', 'run', 'assert', 'open', body) as (
      ...given: unknown[]
    ) => Promise<void>
    await program(db, 'run-1', assert, open)
  } finally {
    await db.close()
  }
}

describe('the examples in the source', () => {
  const files = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' }).filter(name =>
    /[^t]\.ts$/.test(name),
  )
  const examples = files.flatMap(examplesOf)

  test('every method that takes a scope, and every one of runs, has one', () => {
    for (const primitive of [Kv, Events, Cells, Machines, Traces, Runs, Annals]) {
      for (const method of Object.getOwnPropertyNames(primitive.prototype)) {
        if (['constructor', 'recovery', 'close', 'checkpoint', 'backup', 'stats'].includes(method)) continue
        expect(
          examples.some(({ name }) => name.endsWith(`: ${method}`)),
          `${primitive.name}.${method}`,
        ).toBe(true)
      }
    }
  })

  for (const example of examples) test(`${example.name} does what it says`, () => run(example))
})
