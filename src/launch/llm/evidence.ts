import { join } from 'node:path'
import { AnnalsError, invalidArgument } from '../../core/errors.ts'
import type { Disk } from '../../disk/disk.ts'
import { makeFolders, readFile, removeIfThere, replaceFile } from '../../disk/durable-file.ts'
import { LineFile, wholeLines } from '../../disk/line-file.ts'
import { openNodeDisk } from '../../disk/node-disk.ts'
import type { ChatBody } from './chat-request.ts'
import { type Completion, outputHash, readCompletion } from './completion.ts'
import { isPlainObject, type JsonObject, parseJsonText } from './json.ts'
import type { FailedTry } from './tries.ts'

/**
 * The file `evidence/llm/<call_id>.json` of a call. It is written with the
 * request before that is sent, and again with the answer or the failure. The
 * file `index.jsonl` has a line for each call that has ended. It only saves
 * reading every file: an answer whose line was lost in a crash is still found.
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
  /** The call whose recorded answer was used. */
  readonly cached_from?: string
  readonly answer?: EvidenceAnswer
  readonly failure?: {
    readonly error_class: string
    readonly error_summary: string
    readonly status?: number
    readonly body?: unknown
  }
  /** Remarks for a reader of this file. */
  readonly notes?: readonly string[]
}

interface EvidenceAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly streamed: boolean
  /** The answer. A stream is assembled first, because a secret could be cut in two by its pieces. */
  readonly body: Completion
  /** The hash of the answer before redaction. */
  readonly output_hash: string
  /** Whether secrets were removed. The hash then does not match the body. */
  readonly redacted: boolean
}

export type AnsweredEvidence = Evidence & { readonly answer: EvidenceAnswer }

const FOLDER = 'evidence/llm'
const INDEX = 'index.jsonl'
const SUFFIX = '.json'
/** A call id becomes a file name. */
const CALL_ID = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$/

/** Opens the folder of the evidence, and creates it if it is missing. Each use opens and closes it. */
export type OpenEvidence = () => Disk

/** The evidence in a run's folder of the file system. */
export function evidenceOf(runFolder: string): OpenEvidence {
  return () => openNodeDisk(join(runFolder, FOLDER))
}

/** The evidence in an open run's folder. */
export function evidenceIn(run: Disk): OpenEvidence {
  const synced = new Set<string>()
  return () => {
    makeFolders(run, FOLDER, synced)
    return run.folder(FOLDER)
  }
}

/** The evidence of a run, and its recorded answers. */
export class EvidenceStore {
  readonly #open: OpenEvidence
  /** The calls with an answer by cache key, in the order in which they ended. */
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
      // Temporary files of a crashed process were never renamed, so nothing relies on them.
      for (const name of names.filter(isLeftOver)) removeIfThere(disk, name)
      // A crashed process may not have synced the names of its files.
      disk.syncFolder()
      const files = names.filter(name => name.endsWith(SUFFIX))
      const store = new EvidenceStore(open, new Set(files.map(name => name.slice(0, -SUFFIX.length))))
      await store.#load(disk)
      return store
    } finally {
      disk.close()
    }
  }

  /** The path of a call's evidence, relative to the run's folder, with `/` on every system. */
  static pathOf(callId: string): string {
    return `evidence/llm/${callId}${SUFFIX}`
  }

  /**
   * Claims an id for a call: the given one, or the start of the cache key and a counter. The id is deterministic. It is not
   * reused after a crash, because the evidence of the request is written before anything else knows the id.
   */
  claim(cacheKey: string, given: string | undefined): string {
    if (given !== undefined && !CALL_ID.test(given)) {
      throw invalidArgument('callId', 'must be 1 to 128 of A-Z a-z 0-9 . _ - and not start with a dot')
    }
    if (given !== undefined && this.#callIds.has(given)) {
      throw new AnnalsError('INVALID_ARGUMENT', `this run already has a call ${given}`, {
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
    // Not canonical JSON, which limits the depth: the fields around the checked parts add three levels.
    const text = `${JSON.stringify(evidence, null, 2)}\n`
    await this.#within(disk =>
      replaceFile(disk, `${evidence.call_id}${SUFFIX}`, Buffer.from(text), 'private'),
    )
    if (evidence.finished_at === undefined) return
    await this.#inTurn(() => this.#within(disk => this.#append(disk, [evidence])))
    if (evidence.answer !== undefined) this.#remember(evidence.cache_key, evidence.call_id)
  }

  /** The n-th recorded answer to a request, counted from 1, or the last one. Undefined if there is none. */
  async find(cacheKey: string, n: number): Promise<AnsweredEvidence | undefined> {
    const callIds = this.#answered.get(cacheKey)
    if (callIds === undefined) return undefined
    const callId = callIds[Math.min(n, callIds.length) - 1]
    const evidence = await this.#within(async disk => this.#read(disk, callId))
    if (evidence.answer === undefined || evidence.cache_key !== cacheKey) return this.#corrupt(callId)
    const { body, output_hash: hash, redacted } = evidence.answer
    // An answer that was changed is not used.
    if (!redacted && outputHash(body) !== hash) return this.#corrupt(callId)
    return evidence as AnsweredEvidence
  }

  /** The newest recorded answers, to search for a similar request. */
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
      // A line that a crash tore. Its answer is found in its file.
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
    // The next write waits for this one, and starts even if it fails.
    this.#last = turn.catch(() => undefined)
    return turn
  }

  #corrupt(callId: string): never {
    const file = EvidenceStore.pathOf(callId)
    throw new AnnalsError('CORRUPT', `${file} is not valid evidence of the call ${callId}`, { file, callId })
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
