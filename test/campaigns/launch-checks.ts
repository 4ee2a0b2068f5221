import { AnnalsError } from '../../src/core/errors.ts'
import { sha256Hex } from '../../src/core/hash.ts'
import { formatRfc3339, parseRfc3339 } from '../../src/core/time.ts'
import { readFile } from '../../src/disk/durable-file.ts'
import { eventHash, lineOf, verifyLog } from '../../src/launch/chain.ts'
import type { LaunchEvent } from '../../src/launch/events.ts'
import type { LaunchState } from '../../src/launch/launch-state.ts'
import { replayBytes, snapshotAt } from '../../src/launch/replay.ts'
import { readSnapshot, snapshotText } from '../../src/launch/snapshot.ts'
import { eventIdOf } from '../../src/telemetry/model.ts'
import { readTold, TOLD_FILE } from '../../src/telemetry/told.ts'
import type { Random } from '../../src/testing/random.ts'
import type { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { check } from './crash-workload.ts'
import { type LaunchShape, type LaunchWorld, RUN_ID, STATES } from './launch-world.ts'

/** Checks of a run's folder after a crash and at the end of the run. */

export type Recovered =
  /** No event of the run was promised, and none was found. */
  | { readonly kind: 'new'; readonly torn: Buffer }
  | {
      readonly kind: 'found'
      readonly hasEnded: boolean
      readonly torn: Buffer
      /** The lines of the log, each with its LF. */
      readonly lines: readonly string[]
      /** Worker and scope of the finished work items. */
      readonly finished: readonly string[]
      readonly artifacts: LaunchState['artifacts']
    }

const FOLDER = `runs/${RUN_ID}`

/** Checks the image that a crash has left, without changing it. */
export function checkImage(disk: SimulatedDisk, world: LaunchWorld): Recovered {
  const bytes = readFile(disk, `${FOLDER}/events.ndjson`) ?? Buffer.alloc(0)
  const promised = world.lines.join('')
  check(
    bytes.toString('utf8').startsWith(promised),
    `N2: ${world.lines.length} events were promised, and are not all there`,
  )
  const { events, tornBytes } = verifyLog(bytes, RUN_ID)
  const torn = bytes.subarray(bytes.length - tornBytes)
  const aside = readFile(disk, `${FOLDER}/events.ndjson.torn`) ?? Buffer.alloc(0)
  check(torn.equals(world.torn) || aside.includes(world.torn), 'ND4: a torn line is gone')
  checkNothingMoreTold(disk, world, events)
  if (events.length === 0) return { kind: 'new', torn }
  checkTimeAndTrace(events)
  checkCalls(events)
  const found = readSnapshot(disk.folder(FOLDER), RUN_ID)
  check(found.kind !== 'invalid', `N5: the snapshot is damaged: ${JSON.stringify(found)}`)
  const covered = found.kind === 'read' ? found.snapshot.log.events : 0
  check(
    covered >= world.snapshotEvents,
    `N5: the snapshot covers ${covered} events, promised were ${world.snapshotEvents}`,
  )
  const replayed = replayBytes(bytes, RUN_ID, STATES, found)
  check(
    replayed.snapshotProblem === undefined || found.kind === 'missing',
    `N7: the snapshot is not what its events give: ${replayed.snapshotProblem}`,
  )
  checkState(replayed.state, events)
  for (const { name, path, sha256 } of replayed.state.artifacts) {
    const pending = `${path}.${sha256.slice(0, 16)}.pending`
    const isThere = [path, pending].some(place => hashOf(disk, `${FOLDER}/${place}`) === sha256)
    check(isThere, `N8: artifact ${name} is in the log and not on disk`)
  }
  const { memory, work_items } = replayed.state
  const finished = work_items
    .slice(memory.firstItem)
    .filter(({ status }) => status === 'finished')
    .map(({ worker, scope_key }) => `${worker} ${scope_key}`)
  const lines = bytes.toString('utf8', 0, bytes.length - tornBytes).split(/(?<=\n)/)
  const { artifacts } = replayed.state
  return { kind: 'found', hasEnded: memory.hasEnded, torn, lines, finished, artifacts }
}

/** N8: the artifacts in the log whose file is missing or has another content. */
export function misplaced(disk: SimulatedDisk, found: Ended['found']): string[] {
  if (found.kind !== 'found') return []
  const isMissing = ({ path, sha256 }: { path: string; sha256: string }): boolean =>
    hashOf(disk, `${FOLDER}/${path}`) !== sha256
  return found.artifacts.filter(isMissing).map(({ name }) => name)
}

interface Ended {
  readonly executed: readonly string[]
  readonly asked: readonly string[]
  /** Prompts whose answer a worker had received before. */
  readonly answered: readonly string[]
  readonly found: Recovered | { readonly kind: 'forced' }
}

/** Checks the folder after a process has worked on the run to its end. */
export function checkEnd(
  disk: SimulatedDisk,
  world: LaunchWorld,
  { scopes, hasGate, hasModel }: LaunchShape,
  { executed, asked, answered, found }: Ended,
): void {
  const bytes = readFile(disk, `${FOLDER}/events.ndjson`) ?? Buffer.alloc(0)
  const snapshot = readSnapshot(disk.folder(FOLDER), RUN_ID)
  const { state, seal, events, tornBytes } = replayBytes(bytes, RUN_ID, STATES, snapshot)
  // A resume that is refused changes nothing. It neither removes a torn line nor writes a missing snapshot.
  const isRefused = found.kind === 'found' && found.hasEnded
  const lines = (isRefused ? found.lines : world.lines).join('')
  check(bytes.toString('utf8', 0, bytes.length - tornBytes) === lines, 'N2: the log is not what was told')
  if (!isRefused) {
    check(tornBytes === 0, 'ND4: a torn line is left')
    const isSame = snapshot.kind === 'read' && snapshot.text === snapshotText(snapshotAt({ state, seal }))
    check(isSame, 'N7: the replayed snapshot is not the one on disk')
  }
  check(state.memory.hasEnded && state.run_state === STATES.done, `the run is ${state.run_state}`)
  for (const { name, path, sha256 } of state.artifacts)
    check(hashOf(disk, `${FOLDER}/${path}`) === sha256, `artifact ${name} is not what the log says`)
  checkState(state, events)
  checkTimeAndTrace(events)
  checkCalls(events)
  for (const scope of scopes) check(state.section_states[scope] === 'DRAFTED', `section ${scope} is missing`)
  if (hasGate) check(state.gates.length === 1 && state.gates[0].ok, 'the gate has not passed')
  if (found.kind === 'found') {
    const again = executed.filter(id => found.finished.includes(workOf(id)))
    check(again.length === 0, `N8: finished work was run again: ${again.join(', ')}`)
  }
  if (found.kind === 'forced') {
    const restarted = 1 + events.findLastIndex(({ type }) => type === 'RUN_RESTARTED')
    const then = replayBytes(bytes, RUN_ID, STATES, { kind: 'missing' }, restarted)
    checkState(then.state, events.slice(0, restarted))
    check(executed.length >= scopes.length, 'N9: not all work was run again')
    check(!hasModel || asked.length === 0, 'N9: the model was asked again')
  }
  const again = asked.filter(prompt => answered.includes(prompt))
  check(again.length === 0, `ND9: a recorded answer was asked for again: ${again.join(', ')}`)
}

/** The id consists of run, worker, attempt and scope. */
function workOf(workItemId: string): string {
  const [, worker, , scope] = workItemId.split(':')
  return `${worker} ${scope}`
}

/** N3: checks time and trace id of the events. */
function checkTimeAndTrace(events: readonly LaunchEvent[]): void {
  let last = Number.NEGATIVE_INFINITY
  for (const [index, { ts, trace_id }] of events.entries()) {
    const time = parseRfc3339(ts, { offset: 'any' }) ?? Number.NaN
    check(time >= last, `N3: the ts of event ${index + 1} goes back`)
    check(trace_id === events[0].trace_id, `N3: event ${index + 1} has another trace id`)
    last = time
  }
}

/** N4: each call of a model has its own `call_id` and one LLM_CALL_STARTED. */
function checkCalls(events: readonly LaunchEvent[]): void {
  const seen = new Set<string>()
  for (const event of events) {
    if (event.type !== 'LLM_CALL_STARTED') continue
    const { call_id } = event.payload
    check(!seen.has(call_id), `N4: two calls have the id ${call_id}`)
    seen.add(call_id)
  }
}

/** N6, N9: recomputes sections, gates and issues with maps that a forced restart empties. */
function checkState(state: LaunchState, events: readonly LaunchEvent[]): void {
  const sections = new Map<string, string>()
  const gates = new Map<string, boolean>()
  const issues = new Map<string, string>()
  for (const event of events) {
    if (event.type === 'RUN_RESTARTED') for (const map of [sections, gates, issues]) map.clear()
    if (event.type === 'SECTION_STATE_CHANGED') sections.set(event.payload.section, event.payload.new_state)
    if (event.type === 'GATE_RUN_FINISHED') gates.set(event.payload.gate, event.payload.ok)
    if (event.type === 'ISSUE_OPENED') issues.set(event.payload.issue.issue_id, 'OPEN')
    if (event.type === 'ISSUE_RESOLVED') issues.set(event.payload.issue_id, 'RESOLVED')
  }
  const same = (what: string, found: object, expected: ReadonlyMap<string, unknown>): void =>
    check(
      JSON.stringify(found) === JSON.stringify(Object.fromEntries(expected)),
      `N9: ${what} are ${JSON.stringify(found)}, expected ${JSON.stringify([...expected])}`,
    )
  same('sections', state.section_states, sections)
  same('gates', Object.fromEntries(state.gates.map(({ name, ok }) => [name, ok])), gates)
  same('issues', Object.fromEntries(state.issues.map(issue => [issue.issue_id, issue.status])), issues)
}

/** N10: everything that has started is in telemetry, and no record is left open. */
export function checkTrail(disk: SimulatedDisk, { service }: LaunchWorld): void {
  const { events } = verifyLog(readFile(disk, `${FOLDER}/events.ndjson`) ?? Buffer.alloc(0), RUN_ID)
  for (const { type, trace_id, span_id } of events) {
    if (!/^(WORK_ITEM|GATE_RUN|LLM_CALL)_STARTED$|^RUN_CREATED$/.test(type)) continue
    check(service.runs.has(eventIdOf(trace_id, span_id)), `N10: telemetry has no record of ${type}`)
  }
  const open = [...service.runs.values()].filter(run => run['status'] === 'running')
  check(open.length === 0, `N10: telemetry says running: ${open.map(run => run['run_id']).join(', ')}`)
  const ended = events.findLast(({ type }) => type === 'RUN_COMPLETED')
  const said = service.runs.get(eventIdOf(events[0].trace_id, events[0].span_id))?.['end_time']
  check(said === ended?.ts, `N10: telemetry says that the run ended at ${String(said)}, not at ${ended?.ts}`)
  const told = readTold(disk.folder(FOLDER))
  check(told === undefined, `N10: telemetry is complete, and ${TOLD_FILE} is still there`)
}

/**
 * N10: if telemetry knows the end of a run, the log contains it, even after a power cut. If telemetry knows the run as
 * running, a file records how much it was told.
 */
function checkNothingMoreTold(
  disk: SimulatedDisk,
  { service }: LaunchWorld,
  events: readonly LaunchEvent[],
): void {
  const status = service.statusOf(RUN_ID)
  if (status === undefined) return
  check(events.length > 0, 'N10: telemetry knows a run that has no event')
  const hasEnded = events.some(({ type }) => type === 'RUN_COMPLETED')
  check(hasEnded || status === 'running', 'N10: telemetry knows an end that the log has lost')
  if (status !== 'running') return
  const told = readTold(disk.folder(FOLDER))
  check(typeof told === 'object', `N10: nothing says how far telemetry was told: ${told ?? 'no file'}`)
}

/** N2, N3, ND3: a modified log is refused, even if its hashes were recomputed. */
export function checkTampering(disk: SimulatedDisk, random: Random): void {
  const bytes = readFile(disk, `${FOLDER}/events.ndjson`) ?? Buffer.alloc(0)
  const { events } = verifyLog(bytes, RUN_ID)
  const at = 1 + random.below(events.length - 2)
  const before = parseRfc3339(events[at - 1].ts, { offset: 'any' }) ?? 0
  const changed: readonly (readonly [rule: string, events: readonly LaunchEvent[]])[] = [
    ['N3: a ts that goes back', hashed(events.with(at, { ...events[at], ts: formatRfc3339(before - 1) }))],
    ['N3: another trace id', events.with(at, { ...events[at], trace_id: 'f'.repeat(32) })],
    ['ND3: a missing line', events.toSpliced(at, 1)],
    ['ND3: another event id', events.with(at, { ...events[at], event_id: events[at - 1].event_id })],
    ['ND3: a foreign line', events.with(at, { ...events[at], run_id: 'run-2' })],
  ]
  for (const [what, log] of changed) {
    const text = log.map(lineOf).join('')
    const why = brokenBy(() => verifyLog(Buffer.from(text), RUN_ID))
    check(why === 'EVENT_CHAIN_BROKEN', `${what} is not noticed: ${why}`)
  }
}

function hashed(events: readonly LaunchEvent[]): readonly LaunchEvent[] {
  let prev_hash = ''
  return events.map(event => {
    const event_hash = eventHash({ ...event, prev_hash })
    const made = { ...event, prev_hash, event_hash }
    prev_hash = event_hash
    return made
  })
}

function brokenBy(work: () => unknown): string {
  try {
    work()
    return 'nothing'
  } catch (error) {
    return error instanceof AnnalsError ? error.code : String(error)
  }
}

function hashOf(disk: SimulatedDisk, path: string): string | undefined {
  const content = readFile(disk, path)
  return content === undefined ? undefined : sha256Hex(content)
}
