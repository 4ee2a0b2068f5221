import { sha256 } from '../core/hash.ts'
import { type EmbeddedOptions, openEmbedded } from '../embedded/open.ts'
import type { EmbeddedStore } from '../embedded/store.ts'
import { TAGS } from '../engine/keys.ts'
import type { Committed, Operation } from '../engine/storage.ts'
import type { Random } from './random.ts'
import type { SimulatedDisk } from './simulated-disk.ts'

/**
 * A small random program against a store on a simulated disk, and what every
 * state it may leave behind must look like: the first V of its commits, for some
 * V that is not below what was acknowledged.
 */

const SCOPES = ['t:a:g:run-1', 't:a:g:run-2', 't:a:g:run-3'] as const
const TREES = SCOPES.flatMap(scope => [TAGS.kv, TAGS.event, TAGS.event | 0x80].map(tag => ({ scope, tag })))
const KEYS = 24

/** Everything small, so that a few commits meet rotation, checkpoints, splits, eviction and relocation. */
export function tinyOptions(disk: SimulatedDisk, durability: 'durable' | 'relaxed'): EmbeddedOptions {
  let tick = 0
  return {
    disk: disk.handle(),
    durability,
    clock: () => 1_750_000_000_000,
    scheduler: { soon: queueMicrotask, later: queueMicrotask, now: () => (tick += 0.7) },
    walBytes: 3_000,
    prepareBytes: 2_048,
    cacheBytes: 2_000,
    dirtyBytes: 20_000,
    garbageBytes: 6_000,
    fileBytes: 10_000,
    warn: () => undefined,
  }
}

/** States by the number of commits they hold; shared by the generations of one history. */
export class History {
  /** `commits[v - 1]` is commit v. */
  readonly commits: (readonly Operation[])[]
  readonly #states: (string | undefined)[] = []

  constructor(commits: readonly (readonly Operation[])[] = []) {
    this.commits = [...commits]
  }

  /** The history of a store that was recovered at this version. */
  upTo(version: number): History {
    return new History(this.commits.slice(0, version))
  }

  stateAt(version: number): string {
    this.#states[version] ??= this.#build(version)
    return this.#states[version]
  }

  #build(version: number): string {
    const trees = new Map<string, Map<string, string>>()
    const tree = (scope: string, tag: number): Map<string, string> => {
      const id = `${scope} ${tag}`
      const known = trees.get(id) ?? new Map<string, string>()
      trees.set(id, known)
      return known
    }
    for (const operations of this.commits.slice(0, version)) {
      for (const operation of operations) {
        if (operation.op === 'put') tree(operation.scope, operation.tag).set(operation.key, operation.value)
        else if (operation.op === 'delete') tree(operation.scope, operation.tag).delete(operation.key)
        else {
          const known = tree(operation.scope, operation.tag | 0x80)
          const key = operation.dedupe?.key as string
          if (known.has(key)) continue
          const log = tree(operation.scope, operation.tag)
          known.set(key, String(log.size))
          log.set(String(log.size).padStart(8, '0'), operation.body)
        }
      }
    }
    return TREES.map(({ scope, tag }) => {
      const entries = [...(trees.get(`${scope} ${tag}`) ?? [])].sort(([a], [b]) => (a < b ? -1 : 1))
      return `${scope} ${tag}: ${entries.map(([key, value]) => `${key}=${value}`).join(' ')}`
    }).join('\n')
  }
}

/** What a store holds, in the words of `History.stateAt`. */
export async function stateOf(store: EmbeddedStore): Promise<string> {
  const lines: string[] = []
  for (const { scope, tag } of TREES) {
    const entries = await store.scan({ scope, tag })
    const shown = entries.map(({ key, value }, index) => {
      if (tag === TAGS.kv) return `${key}=${value}`
      if (tag === TAGS.event) return `${String(index).padStart(8, '0')}=${value.slice(64)}`
      return `${key}=${Number.parseInt(Buffer.from(value, 'latin1').toString('hex', 0, 8), 16)}`
    })
    lines.push(`${scope} ${tag}: ${shown.join(' ')}`)
  }
  return lines.join('\n')
}

export interface Progress {
  /** The newest version that somebody was told of. */
  acknowledged: number
  /** The newest version that must survive a power cut. */
  durable: number
  /** Commits that were asked for. */
  issued: number
}

/** Runs a random program until it ends or the disk fails; `progress` is true at every moment in between. */
export async function runProgram(
  disk: SimulatedDisk,
  history: History,
  options: {
    readonly random: Random
    readonly durability: 'durable' | 'relaxed'
    readonly steps: number
    readonly progress: Progress
    readonly close: boolean
  },
): Promise<void> {
  const { random, progress } = options
  const store = await openEmbedded(tinyOptions(disk, options.durability))
  // What an opened store shows may be built upon: it has to be durable, whoever wrote it.
  progress.acknowledged = store.stats().version
  progress.durable = progress.acknowledged
  for (let step = 0; step < options.steps; step++) {
    const crowd = random.chance(0.6) ? 1 : 1 + random.below(6)
    const waiting: Promise<void>[] = []
    for (let i = 0; i < crowd; i++) {
      const operations = randomOperations(random, history.commits.length)
      history.commits.push(operations)
      progress.issued = history.commits.length
      waiting.push(
        store.commit({ operations }).then(outcome => {
          progress.acknowledged = Math.max(progress.acknowledged, (outcome as Committed).version)
          if (options.durability === 'durable') progress.durable = progress.acknowledged
        }),
      )
    }
    if (random.chance(0.12)) waiting.push(checkpoint(store, progress))
    await Promise.all(waiting)
  }
  if (options.close) await store.close()
}

async function checkpoint(store: EmbeddedStore, progress: Progress): Promise<void> {
  const { version } = store.stats()
  await store.checkpoint()
  progress.durable = Math.max(progress.durable, version)
}

/** Always changes something, so that each commit has a version of its own. */
export function randomOperations(random: Random, commit: number): Operation[] {
  const operations: Operation[] = []
  const count = random.chance(0.7) ? 1 : 1 + random.below(5)
  for (let i = 0; i < count; i++) {
    const scope = random.pick(SCOPES)
    const key = `key-${random.below(KEYS)}`
    const draw = random.next()
    if (draw < 0.55)
      operations.push({ op: 'put', scope, tag: TAGS.kv, key, value: randomValue(random, commit) })
    else if (draw < 0.75) operations.push({ op: 'delete', scope, tag: TAGS.kv, key })
    else {
      const body = randomValue(random, commit)
      // A third of the dedupe keys come again.
      const dedupe = { key: random.chance(0.33) ? `d-${random.below(8)}` : `d-${commit}-${i}` }
      operations.push({ op: 'append', scope, tag: TAGS.event, body, bodyHash: sha256(body), dedupe })
    }
  }
  operations.push({ op: 'put', scope: SCOPES[0], tag: TAGS.kv, key: 'commit', value: String(commit) })
  return operations
}

function randomValue(random: Random, commit: number): string {
  return `${commit}-${'x'.repeat(random.chance(0.1) ? random.below(900) : random.below(60))}`
}
