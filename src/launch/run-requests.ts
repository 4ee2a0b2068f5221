import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { AnnalsError, type ErrorCode } from '../core/errors.ts'
import { newOrderedId } from '../core/id.ts'
import { lockRun } from './run-files.ts'
import { replaceFile } from './run-folder.ts'

/**
 * What other processes ask of the one that works on a run. Each request is a
 * file in the run's folder, so that it outlives whoever is killed: asked →
 * taken (its name says so) → answered, beside it → gone. One that nobody
 * answered is found by the process that resumes the run; or who asked finds
 * the run free, and does it himself.
 */
export type RunRequest =
  | { readonly kind: 'pause'; readonly reason?: string }
  | { readonly kind: 'unpause' }
  | { readonly kind: 'cancel'; readonly reason: string }

type Answer = { readonly ok: true } | { readonly code: ErrorCode; readonly message: string }

const FOLDER = 'requests'
/** Those that were taken by a process that died are taken again. */
const REQUEST = /^([\w-]+)(\.taken)?\.json$/
const LOOK_MS = 100
/** Every so many looks, who asked looks whether anybody is there at all. */
const LOOKS_FOR_LIFE = 5
/** A request that was not taken by then never will be. */
const TAKEN_WITHIN_MS = 5_000

/** Asks, and waits for the answer; false if nobody works on the run (any more). `LOCKED` if who holds it does not listen. */
export async function askRun(folder: string, runId: string, request: RunRequest): Promise<boolean> {
  mkdirSync(join(folder, FOLDER), { recursive: true })
  const { asked, taken, answered } = filesOf(folder, newOrderedId(Date.now()))
  replaceFile(asked, Buffer.from(JSON.stringify(request)))
  const giveUpAt = Date.now() + TAKEN_WITHIN_MS
  for (let looks = 1; ; looks++) {
    await new Promise(resolve => setTimeout(resolve, LOOK_MS))
    // First whether it is free: an answer that comes in between is found below.
    const isFree = looks % LOOKS_FOR_LIFE === 0 && isUnlocked(folder, runId)
    if (existsSync(answered)) {
      const answer = JSON.parse(readFileSync(answered, 'utf8')) as Answer
      rmSync(answered, { force: true })
      if ('ok' in answer) return true
      throw new AnnalsError(answer.code, answer.message, { runId })
    }
    const isIgnored = Date.now() > giveUpAt && existsSync(asked)
    if (!isFree && !isIgnored) continue
    for (const path of [asked, taken]) rmSync(path, { force: true })
    if (isFree) return false
    const message = `run ${JSON.stringify(runId)} is held by a process that takes no requests`
    throw new AnnalsError('LOCKED', message, { runId, path: folder })
  }
}

function filesOf(runFolder: string, id: string): { asked: string; taken: string; answered: string } {
  const path = (end: string): string => join(runFolder, FOLDER, `${id}${end}`)
  return { asked: path('.json'), taken: path('.taken.json'), answered: path('.answer.json') }
}

export function isUnlocked(folder: string, runId: string): boolean {
  try {
    lockRun(folder, runId).release()
    return true
  } catch (error) {
    if (error instanceof AnnalsError && error.code === 'LOCKED') return false
    throw error
  }
}

/** The side of the process that works on the run: looks for requests until it is closed. */
export class RequestWatch {
  readonly #folder: string
  readonly #act: (request: RunRequest) => Promise<unknown>
  readonly #warn: (message: string) => void
  readonly #underWay = new Set<string>()
  readonly #timer: NodeJS.Timeout

  constructor(
    runFolder: string,
    act: (request: RunRequest) => Promise<unknown>,
    warn: (message: string) => void,
  ) {
    this.#folder = runFolder
    this.#act = act
    this.#warn = warn
    this.#look()
    // It keeps the process alive: one whose run is paused has nothing else to do, and must not end for that.
    this.#timer = setInterval(() => this.#look(), LOOK_MS)
  }

  close(): void {
    clearInterval(this.#timer)
  }

  #look(): void {
    const requests = join(this.#folder, FOLDER)
    if (!existsSync(requests)) return
    try {
      for (const name of readdirSync(requests).sort()) {
        const id = REQUEST.exec(name)?.[1]
        if (id === undefined || this.#underWay.has(id)) continue
        this.#underWay.add(id)
        void this.#take(id)
      }
    } catch (error) {
      this.#warn(`requests to a run can't be read: ${String(error)}`)
    }
  }

  /** None waits for another: a pause may take long, and a cancellation must get through meanwhile. */
  async #take(id: string): Promise<void> {
    const { asked, taken, answered } = filesOf(this.#folder, id)
    try {
      if (existsSync(asked)) renameSync(asked, taken)
      const answer = await this.#answer(readFileSync(taken, 'utf8'))
      replaceFile(answered, Buffer.from(JSON.stringify(answer)))
      rmSync(taken, { force: true })
    } catch (error) {
      this.#warn(`a request to a run can't be answered: ${String(error)}`)
    }
  }

  async #answer(request: string): Promise<Answer> {
    try {
      await this.#act(requestIn(request))
      return { ok: true }
    } catch (error) {
      const code = error instanceof AnnalsError ? error.code : 'INVALID_OPERATION'
      return { code, message: error instanceof Error ? error.message : String(error) }
    }
  }
}

/** Anybody may have written it. */
function requestIn(text: string): RunRequest {
  const { kind, reason } = JSON.parse(text) as { kind?: unknown; reason?: unknown }
  const said = typeof reason === 'string' ? reason : undefined
  if (kind === 'pause') return said === undefined ? { kind } : { kind, reason: said }
  if (kind === 'unpause') return { kind }
  if (kind === 'cancel') return { kind, reason: said ?? 'cancelled' }
  throw new AnnalsError('INVALID_ARGUMENT', `a run can't be asked to ${JSON.stringify(kind)}`)
}
