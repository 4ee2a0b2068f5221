import { AnnalsError } from '../core/errors.ts'
import { sha256Hex } from '../core/hash.ts'
import type { Disk } from '../disk/disk.ts'
import {
  filesIn,
  folderOf,
  makeFolders,
  readFile,
  renameIfThere,
  unlessMissing,
  writeNewFile,
} from '../disk/durable-file.ts'
import type { ReadableArtifacts } from './context.ts'
import type { ArtifactEntry, ArtifactRef } from './events.ts'
import type { Journal, Spans } from './journal.ts'

const FOLDER = 'artifacts'
const PENDING = '.pending'
const PART = /^[A-Za-z0-9_-][A-Za-z0-9._-]*$/
const NAME_LENGTH_MAX = 512

/**
 * The artifacts of a run. A file is first written under a pending name and
 * synced, then recorded by an event, and then renamed to its place. So every
 * artifact that the log records is in its place or pending. `recover` moves
 * the pending files that the log records, and removes the others.
 */
export class Artifacts implements ReadableArtifacts {
  readonly #disk: Disk
  readonly #journal: Journal
  readonly #syncedFolders = new Set<string>()
  /** The last write of each path that is still under way. The next write of that path waits for it. */
  readonly #underWay = new Map<string, Promise<unknown>>()

  constructor(disk: Disk, journal: Journal) {
    this.#disk = disk
    this.#journal = journal
  }

  /** The artifacts, to read only. */
  get view(): ReadableArtifacts {
    return {
      has: name => this.has(name),
      names: prefix => this.names(prefix),
      read: name => this.read(name),
      readText: name => this.readText(name),
      readJson: name => this.readJson(name),
    }
  }

  has(name: string): boolean {
    return this.#entry(name) !== undefined
  }

  names(prefix = ''): readonly string[] {
    return this.#journal.state.artifacts
      .map(({ name }) => name)
      .filter(name => name.startsWith(prefix))
      .sort()
  }

  read(name: string): Buffer {
    const entry = this.#entry(name)
    if (entry === undefined) {
      throw new AnnalsError('INVALID_ARGUMENT', `artifact ${JSON.stringify(name)} does not exist`, { name })
    }
    const content = this.#content(entry)
    if (content !== undefined && sha256Hex(content) === entry.sha256) return content
    const message = `the file of artifact ${name}, ${entry.path}, ${content === undefined ? 'is missing' : 'was changed'}`
    throw new AnnalsError('CORRUPT', message, { name, path: entry.path })
  }

  readText(name: string): string {
    return this.read(name).toString()
  }

  readJson(name: string): unknown {
    return JSON.parse(this.readText(name))
  }

  /** An artifact as the input of a worker, with its recorded hash. */
  refOf(name: string): ArtifactRef {
    const entry = this.#entry(name)
    if (entry !== undefined) return { name, sha256: entry.sha256 }
    const message = `artifact ${JSON.stringify(name)}, an input of a worker, does not exist`
    throw new AnnalsError('INVALID_ARGUMENT', message, { name })
  }

  /** Whether the file exists and has the recorded hash. */
  isIntact(name: string): boolean {
    const entry = this.#entry(name)
    if (entry === undefined) return false
    const content = this.#content(entry)
    return content !== undefined && sha256Hex(content) === entry.sha256
  }

  async write(
    name: string,
    content: string | Uint8Array,
    schemaId: string,
    writer: string,
    spans: Spans,
  ): Promise<ArtifactRef> {
    const path = `${FOLDER}/${checkArtifactName(name)}`
    const bytes = typeof content === 'string' ? Buffer.from(content) : content
    const sha256 = sha256Hex(bytes)
    await this.#inTurn(path, async () => {
      await this.#writePending(path, sha256, bytes)
      await this.#journal.append(
        'ARTIFACT_WRITTEN',
        { name, path, sha256, schema_id: schemaId, writer_worker: writer },
        spans,
      )
      renameIfThere(this.#disk, pendingPath(path, sha256), path)
    })
    return { name, sha256 }
  }

  /** Renames the pending files that the log records, and removes the others. */
  recover(): void {
    for (const { path, sha256 } of this.#journal.state.artifacts) {
      renameIfThere(this.#disk, pendingPath(path, sha256), path)
    }
    this.#recoverFolder(FOLDER)
  }

  #recoverFolder(folder: string): void {
    for (const file of filesIn(this.#disk, folder)) {
      if (file.endsWith(PENDING)) this.#disk.remove(`${folder}/${file}`)
    }
    for (const below of this.#foldersIn(folder)) this.#recoverFolder(`${folder}/${below}`)
  }

  #foldersIn(folder: string): readonly string[] {
    try {
      // A crashed process may not have synced the names of the files that it renamed.
      this.#disk.syncFolder(folder)
      return this.#disk.folders(folder)
    } catch (error) {
      unlessMissing(error)
      return []
    }
  }

  async #writePending(path: string, sha256: string, bytes: Uint8Array): Promise<void> {
    makeFolders(this.#disk, folderOf(path), this.#syncedFolders)
    const there = readFile(this.#disk, path)
    // An earlier generation wrote the same content.
    if (there !== undefined && sha256Hex(there) === sha256) return
    await writeNewFile(this.#disk, pendingPath(path, sha256), bytes)
    this.#disk.syncFolder(folderOf(path))
  }

  async #inTurn(path: string, work: () => Promise<void>): Promise<void> {
    // A failed write does not stop the next one. Only its own caller gets the error.
    const turn = (this.#underWay.get(path) ?? Promise.resolve()).then(work, work)
    this.#underWay.set(path, turn)
    try {
      await turn
    } finally {
      if (this.#underWay.get(path) === turn) this.#underWay.delete(path)
    }
  }

  #entry(name: string): ArtifactEntry | undefined {
    return this.#journal.state.artifacts.find(artifact => artifact.name === name)
  }

  #content({ path }: ArtifactEntry): Buffer | undefined {
    return readFile(this.#disk, path)
  }
}

function pendingPath(place: string, sha256: string): string {
  return `${place}.${sha256.slice(0, 16)}${PENDING}`
}

function checkArtifactName(name: unknown): string {
  const isFine =
    typeof name === 'string' &&
    name.length <= NAME_LENGTH_MAX &&
    !name.endsWith(PENDING) &&
    name.split('/').every(part => PART.test(part))
  if (isFine) return name
  const message =
    'the name of an artifact must be a relative path of the characters A-Z a-z 0-9 . _ -, without parts that start with a dot'
  throw new AnnalsError('INVALID_ARGUMENT', message, { name })
}

/** Encodes any text as one part of an artifact's name. Different texts get different parts. */
export function artifactPart(text: string): string {
  const escaped = Buffer.from(text)
    .toString('latin1')
    .replace(/[^A-Za-z0-9-]/g, char => `_${char.charCodeAt(0).toString(16).padStart(2, '0')}`)
  // File names have a limited length.
  return escaped.length <= 150 ? escaped : `${escaped.slice(0, 80)}_.${sha256Hex(text)}`
}
