import { AnnalsError, type ErrorCode } from '../core/errors.ts'
import { newOrderedId } from '../core/id.ts'
import { pause } from '../core/pause.ts'
import type { Disk } from '../disk/disk.ts'
import {
  filesIn,
  makeFolders,
  readFile,
  removeIfThere,
  renameIfThere,
  replaceFile,
} from '../disk/durable-file.ts'
import { isLocked, lockRun } from './run-files.ts'
import { openRun, type RunsPlace, runFolder } from './run-folder.ts'

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
export async function askRun(runId: string, place: RunsPlace, request: RunRequest): Promise<boolean> {
  const disk = openRun(runId, place)
  try {
    makeFolders(disk, FOLDER)
    const { asked, taken, answered } = filesOf(newOrderedId(Date.now()))
    await replaceFile(disk, asked, Buffer.from(JSON.stringify(request)))
    const giveUpAt = Date.now() + TAKEN_WITHIN_MS
    for (let looks = 1; ; looks++) {
      await pause(LOOK_MS)
      // First whether it is free: an answer that comes in between is found below.
      const isFree = looks % LOOKS_FOR_LIFE === 0 && (await isUnlocked(runId, place))
      const answerText = readFile(disk, answered)?.toString('utf8')
      if (answerText !== undefined) {
        const answer = JSON.parse(answerText) as Answer
        removeIfThere(disk, answered)
        if ('ok' in answer) return true
        throw new AnnalsError(answer.code, answer.message, { runId })
      }
      const isIgnored = Date.now() > giveUpAt && readFile(disk, asked) !== undefined
      if (!isFree && !isIgnored) continue
      for (const name of [asked, taken]) removeIfThere(disk, name)
      if (isFree) return false
      const message = `run ${JSON.stringify(runId)} is held by a process that takes no requests`
      throw new AnnalsError('LOCKED', message, { runId, path: runFolder(place, runId) })
    }
  } finally {
    disk.close()
  }
}

function filesOf(id: string): { asked: string; taken: string; answered: string } {
  const name = (end: string): string => `${FOLDER}/${id}${end}`
  return { asked: name('.json'), taken: name('.taken.json'), answered: name('.answer.json') }
}

export async function isUnlocked(runId: string, place: RunsPlace): Promise<boolean> {
  const disk = openRun(runId, place)
  try {
    await lockRun(disk, runId, place)
    return true
  } catch (error) {
    if (isLocked(error)) return false
    throw error
  } finally {
    disk.close()
  }
}

/** The side of the process that works on the run: looks for requests until it is closed. */
export class RequestWatch {
  readonly #disk: Disk
  readonly #act: (request: RunRequest) => Promise<unknown>
  readonly #warn: (message: string) => void
  /** Every request that was seen, so that none is taken twice. */
  readonly #seen = new Set<string>()
  #underWay = 0
  #isClosed = false
  readonly #timer: NodeJS.Timeout

  /** Takes over the disk: answers may be written after the run has let go of its own. */
  constructor(disk: Disk, act: (request: RunRequest) => Promise<unknown>, warn: (message: string) => void) {
    this.#disk = disk
    this.#act = act
    this.#warn = warn
    this.#look()
    // It keeps the process alive: one whose run is paused has nothing else to do, and must not end for that.
    this.#timer = setInterval(() => this.#look(), LOOK_MS)
  }

  close(): void {
    clearInterval(this.#timer)
    this.#isClosed = true
    this.#closeWhenIdle()
  }

  #closeWhenIdle(): void {
    if (this.#isClosed && this.#underWay === 0) this.#disk.close()
  }

  #look(): void {
    try {
      for (const name of filesIn(this.#disk, FOLDER)) {
        const id = REQUEST.exec(name)?.[1]
        if (id === undefined || this.#seen.has(id)) continue
        this.#seen.add(id)
        void this.#take(id)
      }
    } catch (error) {
      this.#warn(`requests to a run can't be read: ${String(error)}`)
    }
  }

  /** None waits for another: a pause may take long, and a cancellation must get through meanwhile. */
  async #take(id: string): Promise<void> {
    const { asked, taken, answered } = filesOf(id)
    this.#underWay++
    try {
      renameIfThere(this.#disk, asked, taken)
      const request = readFile(this.#disk, taken)
      // It was withdrawn.
      if (request === undefined) return
      const answer = await this.#answer(request.toString('utf8'))
      await replaceFile(this.#disk, answered, Buffer.from(JSON.stringify(answer)))
      removeIfThere(this.#disk, taken)
    } catch (error) {
      this.#warn(`a request to a run can't be answered: ${String(error)}`)
    } finally {
      this.#underWay--
      this.#closeWhenIdle()
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
