import { execFile, execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { expect } from 'vitest'
import { verifyLog } from '../../src/launch/chain.ts'
import type { LaunchEvent, LaunchSnapshot } from '../../src/launch/events.ts'
import { replayLaunch } from '../../src/launch/launches.ts'
import type { FakeOpenAi } from '../../src/launch/llm/fake-openai.ts'
import { eventIdOf } from '../../src/telemetry/model.ts'
import { type FaultyTelemetry, openFaultyTelemetry } from '../telemetry/faulty-service.ts'

/** Runs the docs launch of the examples in processes that can be killed. */

const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))))
const PROGRAM = fileURLToPath(new URL('docs-process.mjs', import.meta.url))

export interface DocsOutcome {
  /** `killed` if the process died before it reported a status. */
  readonly status: string
  readonly code?: string
  readonly message?: string
}

export class DocsLaunches {
  readonly folder: string
  readonly #example: string

  private constructor(folder: string, example: string) {
    this.folder = folder
    this.#example = example
  }

  /** Compiles the example against the built package. */
  static make(): DocsLaunches {
    mkdirSync(join(ROOT, 'temp'), { recursive: true })
    // Inside the package, so that `import 'annals/launch'` finds it by its own name.
    const folder = mkdtempSync(join(ROOT, 'temp', 'launches-'))
    const example = join(folder, 'example')
    const compiler = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc')
    execFileSync(process.execPath, [compiler, '-p', join(ROOT, 'examples'), '--outDir', example], {
      cwd: ROOT,
    })
    return new DocsLaunches(folder, example)
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true })
  }

  /** Creates a folder with a repository at the same relative path. */
  async place(name: string): Promise<DocsPlace> {
    const folder = join(this.folder, name)
    mkdirSync(folder, { recursive: true })
    const module = pathToFileURL(join(this.#example, 'docs-launch', 'demo-repository.js')).href
    const { makeDemoRepository } = (await import(module)) as {
      makeDemoRepository(at: string): Promise<string>
    }
    await makeDemoRepository(folder)
    const writer = pathToFileURL(join(this.#example, 'docs-launch', 'writer.js')).href
    const { openWriter } = (await import(writer)) as { openWriter(): Promise<FakeOpenAi> }
    return new DocsPlace(folder, this.#example, await openWriter(), await openFaultyTelemetry())
  }
}

export class DocsPlace {
  readonly runId: string = 'docs-1'
  readonly folder: string
  /** The model's endpoint. It runs in this process, so its counts survive every kill. */
  readonly writer: FakeOpenAi
  readonly telemetry: FaultyTelemetry
  readonly #example: string

  constructor(folder: string, example: string, writer: FakeOpenAi, telemetry: FaultyTelemetry) {
    this.folder = folder
    this.#example = example
    this.writer = writer
    this.telemetry = telemetry
  }

  get runsFolder(): string {
    return join(this.folder, 'runs')
  }

  get runFolder(): string {
    return join(this.runsFolder, this.runId)
  }

  work(mode: 'start' | 'resume' | 'force', killAt = 0): Promise<DocsOutcome> {
    const settings = {
      example: this.#example,
      mode,
      killAt,
      runsFolder: this.runsFolder,
      runId: this.runId,
      // Relative, so that runs in different folders have the same input.
      repository: '../../library.git',
      executions: join(this.folder, 'executions'),
      llm: { baseUrl: this.writer.baseUrl },
      telemetry: { url: this.telemetry.baseUrl },
    }
    return new Promise((resolve, reject) => {
      const args = [PROGRAM, JSON.stringify(settings)]
      execFile(process.execPath, args, { timeout: 60_000 }, (error, stdout, stderr) => {
        if (error?.signal === 'SIGKILL') resolve({ status: 'killed' })
        else if (error) reject(new Error(`${error.message}\n${stderr}`))
        else resolve(JSON.parse(stdout) as DocsOutcome)
      })
    })
  }

  logBytes(): Buffer {
    return readFileSync(join(this.runFolder, 'events.ndjson'))
  }

  events(): readonly LaunchEvent[] {
    return verifyLog(this.logBytes(), this.runId).events
  }

  /** How often the worker of each work item was run. */
  executions(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>()
    const file = join(this.folder, 'executions')
    const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : []
    for (const id of lines) counts.set(id, 1 + (counts.get(id) ?? 0))
    return counts
  }

  /** How often the model was called, by cache key. */
  asked(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>()
    for (const { cacheKey = '' } of this.writer.requests)
      counts.set(cacheKey, 1 + (counts.get(cacheKey) ?? 0))
    return counts
  }

  /** The cache keys of the answers that are on disk. */
  recorded(): readonly string[] {
    const folder = join(this.runFolder, 'evidence', 'llm')
    const names = existsSync(folder) ? readdirSync(folder).filter(name => name.endsWith('.json')) : []
    return names
      .map(name => JSON.parse(readFileSync(join(folder, name), 'utf8')) as Record<string, unknown>)
      .filter(evidence => evidence['answer'] !== undefined)
      .map(evidence => String(evidence['cache_key']))
  }

  /** N10: every worker, gate and call of the log is in telemetry, and nothing is left open there. */
  checkTrail(): void {
    const { runs } = this.telemetry
    for (const { type, trace_id, span_id } of this.events()) {
      if (!/^(WORK_ITEM|GATE_RUN|LLM_CALL)_STARTED$/.test(type)) continue
      expect(runs.has(eventIdOf(trace_id, span_id)), `${type} of ${span_id}`).toBe(true)
    }
    const open = [...runs.values()].filter(run => run['status'] === 'running')
    expect(open.map(run => run['run_id'])).toEqual([])
  }

  async close(): Promise<void> {
    await this.writer.close()
    await this.telemetry.close()
  }

  async remove(): Promise<void> {
    await this.close()
    rmSync(this.folder, { recursive: true, force: true })
  }

  branch(): string {
    const repository = join(this.folder, 'library.git')
    return execFileSync('git', ['rev-parse', 'docs-launch'], { cwd: repository, encoding: 'utf8' }).trim()
  }

  /** The result of a run, without times, ids, attempts and interrupted work. */
  async comesTo(): Promise<unknown> {
    const { snapshot } = await replayLaunch(this.runId, { runsFolder: this.runsFolder })
    return { ...outcomeOf(snapshot), branch: this.branch() }
  }

  /** Checks that no finished item was executed again, under its own id or another one. */
  checkExecutions(): void {
    const finished = new Set<string>()
    const { work_items } = this.lastSnapshot()
    for (const { work_item_id, worker, scope_key, inputs, status } of work_items) {
      if (status !== 'finished') continue
      const work = JSON.stringify([worker, scope_key, inputs])
      expect(finished.has(work), `${work} was finished once`).toBe(false)
      finished.add(work)
      expect(this.executions().get(work_item_id), work_item_id).toBe(1)
    }
    for (const [id, count] of this.executions()) expect(count, id).toBe(1)
  }

  lastSnapshot(): LaunchSnapshot {
    return JSON.parse(readFileSync(join(this.runFolder, 'snapshot.json'), 'utf8')) as LaunchSnapshot
  }

  snapshotText(): string {
    return readFileSync(join(this.runFolder, 'snapshot.json'), 'utf8')
  }
}

function outcomeOf(snapshot: LaunchSnapshot): Record<string, unknown> {
  const { run_state, artifacts_index, work_items, issues, gates, section_states } = snapshot
  return {
    run_state,
    artifacts: Object.fromEntries(
      Object.entries(artifacts_index).map(([name, { path, sha256, schema_id, writer_worker }]) => [
        name,
        { path, sha256, schema_id, writer_worker },
      ]),
    ),
    finished: work_items
      .filter(({ status }) => status === 'finished')
      .map(({ worker, scope_key, inputs, outputs }) => JSON.stringify({ worker, scope_key, inputs, outputs }))
      .sort(),
    issues: issues.map(({ resolved_at: _, ...issue }) => issue),
    gates: gates.map(({ finished_at: _, ...gate }) => gate),
    section_states,
  }
}

/**
 * Starts a run, kills it at an event, and resumes it: once more with a kill if
 * `againAt` says so. It must end as `expected`.
 */
export async function killAndResume(
  launches: DocsLaunches,
  killAt: number,
  expected: unknown,
  againAt = 0,
): Promise<void> {
  const place = await launches.place(`killed-at-${killAt}-${againAt}`)
  expect(await place.work('start', killAt)).toEqual({ status: 'killed' })
  expect(place.events().length).toBeGreaterThanOrEqual(killAt)
  if (againAt > 0) await place.work('resume', againAt)
  const [recorded, before] = [place.recorded(), place.asked()]
  const outcome = await place.work('resume')
  for (const key of recorded) expect(place.asked().get(key), `asked for ${key}`).toBe(before.get(key))
  if (outcome.status === 'refused') {
    // It had ended, and was killed before its last snapshot.
    expect(outcome.code).toBe('ILLEGAL_STATE')
    expect(place.events().at(-1)?.type).toBe('RUN_COMPLETED')
  } else expect(outcome).toMatchObject({ status: 'completed' })
  place.checkTrail()
  expect(await place.comesTo(), `killed at event ${killAt}`).toEqual(expected)
  place.checkExecutions()
  await checkReplay(place)
  await place.remove()
}

/** Checks that a replay gives the live snapshot, byte for byte. */
export async function checkReplay(place: DocsPlace): Promise<void> {
  const live = place.snapshotText()
  const asked = place.writer.requests.length
  const replayed = await replayLaunch(place.runId, { runsFolder: place.runsFolder })
  expect(replayed.text).toBe(live)
  expect(place.writer.requests).toHaveLength(asked)
  expect(place.snapshotText()).toBe(live)
}
