import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { createClient } from '../src/client.ts'
import {
  deriveIdempotencyKey,
  type IdempotencyFields,
  idempotencyPreimage,
  namespace,
  open,
  openOn,
  verifyBundle,
} from '../src/index.ts'
import { createServer } from '../src/server.ts'
import { ReferenceStorage } from '../src/testing/reference-storage.ts'
import { methodNames } from './method-names.ts'

/**
 * Runs every `@example` in the source, with an empty store as `db`, a run id as `run`, and `newEvent` to make an event
 * for the ledger. The value after `// →` is the expected value of the line.
 */
const SOURCE = join(dirname(dirname(fileURLToPath(import.meta.url))), 'src')

interface Example {
  readonly name: string
  readonly code: string
}

/** The examples of a file, each with the line of code below its comment. */
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

/** Turns `expression // → value` into an assertion. */
function asserted(code: string): string {
  return code.replace(/^(.*?) \/\/ → (.*)$/gm, (_, expression: string, value: string) => {
    const awaited = expression.trim().startsWith('await ') ? `(${expression.trim()})` : expression.trim()
    return `assert.deepEqual(${awaited}, ${value})`
  })
}

function newEvent(fields: Partial<IdempotencyFields>): unknown {
  const identity = {
    runId: 'run-1',
    planId: 'plan',
    planVersion: '1',
    logicalAttemptId: 1,
    eventType: 'RunStarted',
  }
  const event = { ...identity, ...fields }
  return {
    eventId: randomUUID(),
    emittedAt: new Date().toISOString(),
    tenantId: 'acme',
    projectId: 'shop',
    environmentId: 'test',
    engineAttemptId: 1,
    idempotencyKey: deriveIdempotencyKey(event),
    ...event,
  }
}

async function run({ code }: Example): Promise<void> {
  const db = await open({ memory: true })
  try {
    const body = `'use strict'; return (async () => {\n${asserted(code)}\n})()`
    // The examples are code of this repository, so running them is safe.
    const given = {
      ...{ db, run: 'run-1', assert, open, newEvent, deriveIdempotencyKey, idempotencyPreimage },
      createServer,
      createClient,
      verifyBundle,
      namespace,
      openOn,
      ReferenceStorage,
    }
    const program = new Function(...Object.keys(given), body) as (...given: unknown[]) => Promise<void>
    await program(...Object.values(given))
  } finally {
    await db.close()
  }
}

describe('the examples in the source', () => {
  const files = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' }).filter(name =>
    /[^t]\.ts$/.test(name),
  )
  const examples = files.flatMap(examplesOf)

  /** Members without parameters, and members that are not for users. */
  const WITHOUT = [
    ...['constructor', 'recovery', 'close', 'checkpoint', 'backup', 'stats', 'start'],
    ...[
      'tenants',
      'isSettled',
      'settle',
      'projectIfAny',
      'iterateAlerts',
      'iterateTombstones',
      'iterateScopes',
      'raisedAlerts',
    ],
  ]

  test('every method that takes a scope, and every method of runs, has an example', async () => {
    await using db = await open({ memory: true })
    const { kv, events, cells, machines, traces, runs, ledger } = db
    const parts = { kv, events, cells, machines, traces, runs, ledger, db }
    for (const [part, object] of Object.entries(parts)) {
      for (const method of methodNames(object)) {
        if (WITHOUT.includes(method)) continue
        expect(
          examples.some(({ name }) => name.endsWith(`: ${method}`)),
          `${part}.${method}`,
        ).toBe(true)
      }
    }
  })

  for (const example of examples) test(`${example.name} does what its example shows`, () => run(example))
})
