import { expect, test } from 'vitest'
import type { LedgerFormat } from './formats.ts'
import type { AppendResult, LedgerAlert, RunEventRecord, RunEventWrite, RunSnapshot } from './run-events.ts'

/** True if both types have the same fields and accept the same values. */
type Same<A, B> = [A, keyof A] extends [B, keyof B]
  ? [B, keyof B] extends [A, keyof A]
    ? true
    : false
  : false

test('the tables have the fields of the interfaces', () => {
  // The compiler checks this: `true` is not assignable if the types differ.
  const areSame: [
    Same<LedgerFormat<'run-event'>, RunEventWrite>,
    Same<LedgerFormat<'run-event-record'>, RunEventRecord>,
    Same<LedgerFormat<'append-result'>, AppendResult>,
    Same<LedgerFormat<'run-snapshot'>, RunSnapshot>,
    Same<LedgerFormat<'step'>, RunSnapshot['steps'][number]>,
    Same<LedgerFormat<'alert'>, LedgerAlert>,
  ] = [true, true, true, true, true, true]
  expect(areSame).not.toContain(false)
})
