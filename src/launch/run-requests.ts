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
 * A request to the process that works on a run. It is a file in the run's
 * folder, so that it survives the death of either process. It is asked, then
 * taken (renamed), then answered in a file beside it, and then removed. A
 * request that was not answered is taken by the process that resumes the run,
 * unless the asking process finds the run unlocked and acts itself.
 */
export type RunRequest =
  | { readonly kind: 'pause'; readonly reason?: string }
  | { readonly kind: 'unpause' }
  | { readonly kind: 'cancel'; readonly reason: string }

type Answer = { readonly ok: true } | { readonly code: ErrorCode; readonly message: string }

const FOLDER = 'requests'
/** Matches taken requests too: the process that took one may have died. */
const REQUEST = /^([\w-]+)(\.taken)?\.json$/
const LOOK_MS = 100
/** Every fifth look checks whether any process works on the run. */
const LOOKS_FOR_LIFE = 5
/** A request that was not taken by then is ignored by the process that holds the run. */
const TAKEN_WITHIN_MS = 5_000

/** Sends a request and waits for the answer. False if no process works on the run; `LOCKED` if its process takes no requests. */
export async function askRun(runId: string, place: RunsPlace, request: RunRequest): Promise<boolean> {
  const disk = openRun(runId, place)
  try {
    makeFolders(disk, FOLDER)
    const { asked, taken, answered } = filesOf(newOrderedId(Date.now()))
    await replaceFile(disk, asked, Buffer.from(JSON.stringify(request)))
    const giveUpAt = Date.now() + TAKEN_WITHIN_MS
    for (let looks = 1; ; looks++) {
      await pause(LOOK_MS)
      // The lock is checked first, so that an answer written in between is found below.
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
      const message = `run ${JSON.stringify(runId)} is locked by a process that takes no requests`
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

/** Whether no process works on the run. */
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

/** Takes the requests to a run, in the process that works on it, until it is closed. */
export class RequestWatch {
  readonly #disk: Disk
  readonly #act: (request: RunRequest) => Promise<unknown>
  readonly #warn: (message: string) => void
  /** All requests seen so far. None is taken twice. */
  readonly #seen = new Set<string>()
  #underWay = 0
  #isClosed = false
  readonly #timer: NodeJS.Timeout

  /** Owns the disk, because answers may be written after the run has closed its own. */
  constructor(disk: Disk, act: (request: RunRequest) => Promise<unknown>, warn: (message: string) => void) {
    this.#disk = disk
    this.#act = act
    this.#warn = warn
    this.#look()
    // Not unref'd: a process whose run is paused has nothing else to do, and must not exit.
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

  /** Requests do not wait for each other: a cancellation must be possible during a long pause. */
  async #take(id: string): Promise<void> {
    const { asked, taken, answered } = filesOf(id)
    this.#underWay++
    try {
      renameIfThere(this.#disk, asked, taken)
      const request = readFile(this.#disk, taken)
      // The asking process has withdrawn it.
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

/** Reads a request. Any program may have written the file. */
function requestIn(text: string): RunRequest {
  const { kind, reason } = JSON.parse(text) as { kind?: unknown; reason?: unknown }
  const said = typeof reason === 'string' ? reason : undefined
  if (kind === 'pause') return said === undefined ? { kind } : { kind, reason: said }
  if (kind === 'unpause') return { kind }
  if (kind === 'cancel') return { kind, reason: said ?? 'cancelled' }
  throw new AnnalsError('INVALID_ARGUMENT', `unknown request ${JSON.stringify(kind)}`)
}
