import type { EmbeddedOptions } from '../../src/embedded/open.ts'
import { dedupeTag, headTag, TAGS } from '../../src/engine/keys.ts'
import type { TreeId } from '../../src/engine/storage.ts'
import type { Random } from '../../src/testing/random.ts'
import type { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { MARKER } from './crash-history.ts'

/** The trees and keys that a program uses, with store sizes so small that checkpoints and rotations are frequent. */
export interface Shape {
  readonly name: string
  readonly trees: readonly TreeId[]
  readonly keys: readonly string[]
  /** The maximum size of most values, and of the few large ones. */
  readonly valueBytes: number
  readonly rareBytes: number
  readonly steps: number
  /** The share of commits that delete ranges of neighbouring keys. */
  readonly sweeps: number
  /** The share of commits that also drop a scope. */
  readonly drops: number
  /** The share of commits that write consecutive keys in ascending order. */
  readonly loads: number
  readonly sizes: Pick<
    EmbeddedOptions,
    'walBytes' | 'prepareBytes' | 'cacheBytes' | 'dirtyBytes' | 'garbageBytes' | 'fileBytes'
  >
}

const MARKER_TREE = { scope: 't:a:g:run-0', tag: MARKER.tag }
const withLog = (scope: string): TreeId[] =>
  [TAGS.kv, TAGS.event, dedupeTag(TAGS.event), headTag(TAGS.event)].map(tag => ({ scope, tag }))
const named = (count: number, name: (i: number) => string): string[] =>
  Array.from({ length: count }, (_, i) => name(i))

/** A few short trees. All operations occur, and an image is quick to check. */
export const SMALL: Shape = {
  name: 'small',
  trees: [MARKER_TREE, ...named(3, i => `t:a:g:run-${i}`).flatMap(withLog)],
  keys: named(24, i => `key-${i}`),
  valueBytes: 60,
  rareBytes: 900,
  steps: 24,
  sweeps: 0.06,
  drops: 0.06,
  loads: 0,
  sizes: {
    walBytes: 3_000,
    prepareBytes: 2_048,
    cacheBytes: 2_000,
    dirtyBytes: 20_000,
    garbageBytes: 6_000,
    fileBytes: 10_000,
  },
}

/** One tree with many leaves, which split and merge and are rarely in memory. */
const WIDE: Shape = {
  name: 'wide',
  trees: [MARKER_TREE, ...withLog('t:a:g:run-0')],
  keys: named(150, i => `key-${String(i * 7919).padStart(7, '0')}`),
  valueBytes: 400,
  rareBytes: 6_000,
  steps: 30,
  sweeps: 0.06,
  drops: 0.06,
  loads: 0.15,
  sizes: {
    walBytes: 8_000,
    prepareBytes: 12_000,
    cacheBytes: 6_000,
    dirtyBytes: 12_000,
    garbageBytes: 20_000,
    fileBytes: 25_000,
  },
}

/** Keys so long that a handful of them makes several levels of inner nodes. */
const DEEP: Shape = {
  name: 'deep',
  trees: [MARKER_TREE, { scope: 't:a:g:run-0', tag: TAGS.kv }],
  keys: named(16, i => `${'deep'.repeat(800)}-${i}`),
  valueBytes: 300,
  rareBytes: 900,
  steps: 20,
  sweeps: 0.06,
  drops: 0.06,
  loads: 0.15,
  sizes: {
    walBytes: 20_000,
    prepareBytes: 30_000,
    cacheBytes: 9_000,
    dirtyBytes: 60_000,
    garbageBytes: 40_000,
    fileBytes: 50_000,
  },
}

/** Many trees with names so long that the directory is a tree with several leaves. */
const MANY: Shape = {
  name: 'many trees',
  trees: [
    MARKER_TREE,
    ...named(24, i => `t:a:${'g'.repeat(300)}:${i}`).map(scope => ({ scope, tag: TAGS.kv })),
  ],
  keys: named(3, i => `key-${i}`),
  valueBytes: 40,
  rareBytes: 300,
  steps: 20,
  sweeps: 0.25,
  drops: 0.15,
  loads: 0,
  sizes: {
    walBytes: 5_000,
    prepareBytes: 3_000,
    cacheBytes: 3_000,
    dirtyBytes: 30_000,
    garbageBytes: 8_000,
    fileBytes: 12_000,
  },
}

/** So few operations that every possible image of a power cut can be checked. */
export const TINY: Shape = {
  name: 'tiny',
  trees: [MARKER_TREE, ...withLog('t:a:g:run-0')],
  keys: named(3, i => `key-${i}`),
  valueBytes: 20,
  rareBytes: 300,
  steps: 5,
  sweeps: 0.06,
  drops: 0.06,
  loads: 0,
  sizes: {
    walBytes: 700,
    prepareBytes: 600,
    cacheBytes: 400,
    dirtyBytes: 5_000,
    garbageBytes: 700,
    fileBytes: 1_500,
  },
}

/** Programs pick from this list, so a shape that is listed more often is more frequent. */
export const SHAPES: readonly Shape[] = [SMALL, SMALL, SMALL, SMALL, WIDE, DEEP, MANY, TINY, TINY]

/** The machine's clock. It advances, and sometimes jumps back for a while. */
export class Clock {
  now: number
  highest: number

  constructor(start = 1_750_000_000_000) {
    this.now = start
    this.highest = start
  }

  pass(random: Random): void {
    this.highest += random.below(40)
    this.now = random.chance(0.05) ? this.highest - 1_000 : this.highest
  }
}

/** Delays some tasks like a slow disk and runs others at once, as the seed decides, so that calls overtake each other. */
export function unevenly(random: Random): (task: () => void) => void {
  return task => {
    const draw = random.next()
    void after(draw < 0.5 ? 0 : random.below(draw < 0.9 ? 30 : 300), task)
  }
}

/** Runs the task after `turns + 1` turns of the microtask queue. Awaiting costs a fraction of `queueMicrotask`. */
async function after(turns: number, task: () => void): Promise<void> {
  for (let turn = 0; turn <= turns; turn++) await undefined
  task()
}

const NOW: Promise<void> = Promise.resolve()
const soon = (task: () => void): void => void NOW.then(task)

export function tinyOptions(
  disk: SimulatedDisk,
  shape: Shape,
  durability: 'durable' | 'relaxed',
  clock: () => number,
  tickMs = 0.7,
): EmbeddedOptions {
  let tick = 0
  return {
    disk: disk.handle(),
    durability,
    clock,
    scheduler: { soon, later: soon, now: () => (tick += tickMs) },
    newStoreId: () => disk.newStoreId(),
    warn: () => undefined,
    ...shape.sizes,
  }
}
