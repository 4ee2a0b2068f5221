import { join } from 'node:path'
import { AnnalsError } from '../../core/errors.ts'
import type { Disk } from '../../disk/disk.ts'
import { makeFolders, readFile, removeIfThere, replaceFile } from '../../disk/durable-file.ts'
import { LineFile, wholeLines } from '../../disk/line-file.ts'
import { openNodeDisk } from '../../disk/node-disk.ts'
import type { ChatBody } from './chat-request.ts'
import { type Completion, outputHash, readCompletion } from './completion.ts'
import { isPlainObject, type JsonObject, parseJsonText } from './json.ts'
import type { FailedTry } from './tries.ts'

/**
 * What was asked and answered, in the run's folder: `evidence/llm/<call_id>.json`
 * for each call, written with the request before it is sent and again with the
 * answer or the failure, and `evidence/llm/index.jsonl`, a line for each call
 * that has ended. The index only saves reading every file: an answer whose
 * line was lost in a crash is found in its file.
 */
export interface Evidence {
  readonly evidence_version: 1
  readonly call_id: string
  readonly cache_key: string
  readonly mode: string
  readonly trace_id: string
  readonly span_id: string
  readonly started_at: string
  readonly request: {
    readonly url: string
    readonly headers: Readonly<Record<string, string>>
    readonly body: ChatBody
  }
  readonly hashes: {
    readonly prompt_hash: string
    readonly input_hash: string
    readonly tool_schema_hash: string
  }
  readonly finished_at?: string
  readonly attempts?: number
  readonly failed_tries?: readonly FailedTry[]
  /** The call whose answer this one was given. */
  readonly cached_from?: string
  readonly answer?: EvidenceAnswer
  readonly failure?: {
    readonly error_class: string
    readonly error_summary: string
    readonly status?: number
    readonly body?: unknown
  }
  /** What a reader of this file should know: secrets taken out, tokens not counted. */
  readonly notes?: readonly string[]
}

interface EvidenceAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly streamed: boolean
  /** Of a stream, what its pieces add up to: a secret cut in two would not be seen in them. */
  readonly body: Completion
  /** Of the answer as it came. */
  readonly output_hash: string
  /** Whether secrets were taken out, so that the hash can't be computed again. */
  readonly redacted: boolean
}

export type AnsweredEvidence = Evidence & { readonly answer: EvidenceAnswer }

const FOLDER = 'evidence/llm'
const INDEX = 'index.jsonl'
const SUFFIX = '.json'
/** As the run's own id: it becomes a file's name. */
const CALL_ID = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$/

/** Opens the folder of the evidence, made if it is missing: for each use, as nobody says when the last one was. */
export type OpenEvidence = () => Disk

/** In a run's folder of the file system. */
export function evidenceOf(runFolder: string): OpenEvidence {
  return () => openNodeDisk(join(runFolder, FOLDER))
}

/** In a run's folder that is open. */
export function evidenceIn(run: Disk): OpenEvidence {
  const synced = new Set<string>()
  return () => {
    makeFolders(run, FOLDER, synced)
    return run.folder(FOLDER)
  }
}

export class EvidenceStore {
  readonly #open: OpenEvidence
  /** Calls with an answer by cache key, in the order in which they ended. */
  readonly #answered = new Map<string, string[]>()
  readonly #callIds: Set<string>
  /** Lines are appended one after the other. */
  #last: Promise<unknown> = Promise.resolve()

  private constructor(open: OpenEvidence, callIds: Set<string>) {
    this.#open = open
    this.#callIds = callIds
  }

  static async open(open: OpenEvidence): Promise<EvidenceStore> {
    const disk = open()
    try {
      const names = disk.list()
      // A process that died left them while it wrote. They were never renamed, hence never relied on.
      for (const name of names.filter(isLeftOver)) removeIfThere(disk, name)
      // Nor may the names that others relied on be on the device yet.
      disk.syncFolder()
      const files = names.filter(name => name.endsWith(SUFFIX))
      const store = new EvidenceStore(open, new Set(files.map(name => name.slice(0, -SUFFIX.length))))
      await store.#load(disk)
      return store
    } finally {
      disk.close()
    }
  }

  /** Relative to the run's folder, with `/` on every system: it goes into records that others read. */
  static pathOf(callId: string): string {
    return `evidence/llm/${callId}${SUFFIX}`
  }

  /**
   * Claims an id for a call: the one given, or the start of the cache key and a count. It holds no randomness, and is
   * not given out again after a crash, as the file of the request is there before the call is known to anybody.
   */
  claim(cacheKey: string, given: string | undefined): string {
    if (given !== undefined && !CALL_ID.test(given)) {
      throw new AnnalsError(
        'INVALID_ARGUMENT',
        'callId must be 1 to 128 of A-Z a-z 0-9 . _ - and not start with a dot',
        {
          name: 'callId',
        },
      )
    }
    if (given !== undefined && this.#callIds.has(given)) {
      throw new AnnalsError('INVALID_ARGUMENT', `there was a call ${given} in this run already`, {
        callId: given,
      })
    }
    let callId = given
    for (let n = 1; callId === undefined || (given === undefined && this.#callIds.has(callId)); n++) {
      callId = `${cacheKey.slice(0, 16)}-${n}`
    }
    this.#callIds.add(callId)
    return callId
  }

  async write(evidence: Evidence): Promise<void> {
    // Its parts were checked for depth; around them are three levels more than canonical JSON would take.
    const text = `${JSON.stringify(evidence, null, 2)}\n`
    await this.#within(disk =>
      replaceFile(disk, `${evidence.call_id}${SUFFIX}`, Buffer.from(text), 'private'),
    )
    if (evidence.finished_at === undefined) return
    await this.#inTurn(() => this.#within(disk => this.#append(disk, [evidence])))
    if (evidence.answer !== undefined) this.#remember(evidence.cache_key, evidence.call_id)
  }

  /** The n-th answer to a request, from 1; the last one where there are fewer. Undefined if there is none. */
  async find(cacheKey: string, n: number): Promise<AnsweredEvidence | undefined> {
    const callIds = this.#answered.get(cacheKey)
    if (callIds === undefined) return undefined
    const callId = callIds[Math.min(n, callIds.length) - 1]
    const evidence = await this.#within(async disk => this.#read(disk, callId))
    if (evidence.answer === undefined || evidence.cache_key !== cacheKey) return this.#corrupt(callId)
    const { body, output_hash: hash, redacted } = evidence.answer
    // What is given again is what was answered, or nothing.
    if (!redacted && outputHash(body) !== hash) return this.#corrupt(callId)
    return evidence as AnsweredEvidence
  }

  /** The newest ones that can be given again, for who looks for something similar. */
  async newest(countMax: number): Promise<AnsweredEvidence[]> {
    const callIds = [...this.#answered.values()].flat().slice(-countMax)
    const found = await this.#within(async disk => callIds.map(callId => this.#read(disk, callId)))
    return found.filter((evidence): evidence is AnsweredEvidence => evidence.answer !== undefined)
  }

  async #load(disk: Disk): Promise<void> {
    const indexed = new Set<string>()
    const text = readFile(disk, INDEX)?.toString('utf8') ?? ''
    for (const line of text.split('\n')) {
      const entry = parseJsonText(line)
      // A line that was torn by a crash: its answer is in its file.
      if (!isPlainObject(entry) || typeof entry['cache_key'] !== 'string') continue
      const callId = entry['call_id']
      if (typeof callId !== 'string' || !this.#callIds.has(callId) || indexed.has(callId)) continue
      indexed.add(callId)
      if (entry['answered'] === true) this.#remember(entry['cache_key'], callId)
    }
    const lost: Evidence[] = []
    for (const callId of this.#callIds) {
      if (indexed.has(callId)) continue
      const evidence = this.#read(disk, callId)
      if (evidence.answer !== undefined) lost.push(evidence)
    }
    const order = (evidence: Evidence): string => `${evidence.finished_at ?? ''} ${evidence.call_id}`
    lost.sort((a, b) => (order(a) < order(b) ? -1 : 1))
    if (lost.length > 0) await this.#append(disk, lost)
    for (const { cache_key, call_id } of lost) this.#remember(cache_key, call_id)
  }

  #remember(cacheKey: string, callId: string): void {
    const known = this.#answered.get(cacheKey)
    if (known === undefined) this.#answered.set(cacheKey, [callId])
    else known.push(callId)
  }

  #read(disk: Disk, callId: string): Evidence {
    const value = parseJsonText(readFile(disk, `${callId}${SUFFIX}`)?.toString('utf8') ?? '')
    if (!isEvidence(value) || value.call_id !== callId) return this.#corrupt(callId)
    return value
  }

  async #append(disk: Disk, ended: readonly Evidence[]): Promise<void> {
    const file = await LineFile.open(disk, INDEX, 'private')
    try {
      file.cut(wholeLines(file.read()))
      for (const { cache_key, call_id, answer } of ended) {
        await file.append(`${JSON.stringify({ cache_key, call_id, answered: answer !== undefined })}\n`)
      }
    } finally {
      await file.close()
    }
  }

  async #within<T>(work: (disk: Disk) => Promise<T>): Promise<T> {
    const disk = this.#open()
    try {
      return await work(disk)
    } finally {
      disk.close()
    }
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(work, work)
    // Whoever comes next waits for this one, but its failure is not theirs.
    this.#last = turn.catch(() => undefined)
    return turn
  }

  #corrupt(callId: string): never {
    const file = EvidenceStore.pathOf(callId)
    throw new AnnalsError('CORRUPT', `${file} is no evidence of the call ${callId}`, { file, callId })
  }
}

function isLeftOver(name: string): boolean {
  return name.endsWith('.tmp')
}

function isEvidence(value: unknown): value is Evidence {
  if (!isPlainObject(value) || value['evidence_version'] !== 1) return false
  const { request, answer } = value
  if (!isPlainObject(request) || !isPlainObject(request['body'])) return false
  return answer === undefined || (isPlainObject(answer) && isAnswer(answer))
}

function isAnswer(answer: JsonObject): boolean {
  return typeof readCompletion(answer['body']) !== 'string' && typeof answer['output_hash'] === 'string'
}
