import { createHash, randomBytes } from 'node:crypto'
import type { StoredRun } from './records.ts'

/**
 * The keys of one OpenWorkflow namespace. All are in one scope, so that each call of the backend is one commit.
 *
 * run/record/<id>                     the record of a run
 * run/due/<0 or 1>/<time>/<id>        the same record again, for each run that has not ended: 0 pending, 1 running
 * run/deadline/<time>/<id>            each run that has a deadline and has not ended
 * run/status/<status>/<name>/<id>     each run
 * given/<id>                          the input, context and config of a run, if they are large
 * step/<run>/<attempt>                the record of a step attempt
 * name/<name>                         the names of workflows
 * idempotency/<name>/<key>            the run that was created with this key
 * wait/<signal>/<attempt>             each step attempt that waits for a signal
 * signal/<attempt>                    the signal that a step attempt has received
 * sent/<signal>/<key>                 the runs that received the signal which was sent with this key
 */

/** The last hexadecimal digits of an id. They are 0 in the id of a run, and count in the ids of its step attempts. */
const ORDINAL_DIGITS = 5
const ORDINAL_MAX = 16 ** ORDINAL_DIGITS - 1
/** Digits of the largest time that a `Date` can have. Keys of times must sort as the times do. */
const TIME_DIGITS = 16

/** All keys that a change of a run writes. It declares them as one range, because it knows them only once it has read the run. */
export const RUNS: string = 'run/'
const RECORDS = `${RUNS}record/`
export const PENDING: string = `${RUNS}due/0/`
export const RUNNING: string = `${RUNS}due/1/`
export const DEADLINES: string = `${RUNS}deadline/`
export const NAMES: string = 'name/'

/** Makes ids of runs: UUIDs of version 7, which sort by the time of their creation. */
export class RunIds {
  #time = 0
  #count = 0

  next(time: number): string {
    this.#count = time === this.#time ? (this.#count + 1) % 4096 : 0
    this.#time = time
    const at = time.toString(16).padStart(12, '0')
    const count = this.#count.toString(16).padStart(3, '0')
    const random = randomBytes(6).toString('hex')
    const variant = (8 + (Number.parseInt(random[0], 16) % 4)).toString(16)
    const head = `${at.slice(0, 8)}-${at.slice(8)}-7${count}-${variant}${random.slice(1, 4)}`
    return `${head}-${random.slice(4, 11)}${'0'.repeat(ORDINAL_DIGITS)}`
  }
}

/** The id of the step attempt that follows `previous`, or of a run's first one. */
export function nextAttemptId(runId: string, previous: string | undefined): string {
  const ordinal = previous === undefined ? 1 : Number.parseInt(previous.slice(-ORDINAL_DIGITS), 16) + 1
  if (ordinal > ORDINAL_MAX) throw new Error(`Workflow run ${runId} has too many step attempts`)
  return runId.slice(0, -ORDINAL_DIGITS) + ordinal.toString(16).padStart(ORDINAL_DIGITS, '0')
}

/** The run of a step attempt. */
export function runIdOf(attemptId: string): string {
  return attemptId.slice(0, -ORDINAL_DIGITS) + '0'.repeat(ORDINAL_DIGITS)
}

export function runKey(id: string): string {
  return RECORDS + id
}

export function givenKey(id: string): string {
  return `given/${id}`
}

/** The prefix of a run's step attempts. */
export function stepsOf(runId: string): string {
  return `step/${runId}/`
}

export function stepKey(attemptId: string): string {
  return stepsOf(runIdOf(attemptId)) + attemptId
}

/** Where a run is in the queue. Workers claim the runs that are due in the order of these keys. */
export function dueKey({ id, status, availableAt }: StoredRun): string {
  return `${status === 'pending' ? PENDING : RUNNING}${sortable(availableAt ?? 0)}/${id}`
}

export function deadlineKey(id: string, deadlineAt: number): string {
  return `${DEADLINES}${sortable(deadlineAt)}/${id}`
}

/** The prefix of the runs with a status. `name` is a part of a key of `NAMES`. */
export function runsWith(status: string, name: string): string {
  return `${RUNS}status/${status}/${name}/`
}

export function statusKey({ id, status, workflowName }: StoredRun): string {
  return runsWith(status, part(workflowName)) + id
}

export function nameKey(workflowName: string): string {
  return NAMES + part(workflowName)
}

export function idempotencyKey(workflowName: string, key: string): string {
  return `idempotency/${part(workflowName)}/${part(key)}`
}

/** The prefix of the step attempts that wait for a signal. */
export function waitsFor(signal: string): string {
  return `wait/${part(signal)}/`
}

export function waitKey(signal: string, attemptId: string): string {
  return waitsFor(signal) + attemptId
}

export function deliveryKey(attemptId: string): string {
  return `signal/${attemptId}`
}

export function sentKey(signal: string, key: string): string {
  return `sent/${part(signal)}/${part(key)}`
}

/** A text as a part of a key. Texts that are long or have other characters than these are hashed. */
export function part(text: string): string {
  if (/^[\w.:-]{1,128}$/.test(text)) return text
  return `~${createHash('sha256').update(JSON.stringify(text)).digest('base64url')}`
}

function sortable(time: number): string {
  return String(Math.max(0, time)).padStart(TIME_DIGITS, '0')
}
