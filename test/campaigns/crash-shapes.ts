import type { EmbeddedOptions } from '../../src/embedded/open.ts'
import { dedupeTag, headTag, TAGS } from '../../src/engine/keys.ts'
import type { TreeId } from '../../src/engine/storage.ts'
import type { Random } from '../../src/testing/random.ts'
import type { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { MARKER } from './crash-history.ts'

/** Which trees and keys a program uses, and how small everything is that a store would have large. */
export interface Shape {
  readonly name: string
  readonly trees: readonly TreeId[]
  readonly keys: readonly string[]
  /** Longest usual and longest rare value. */
  readonly valueBytes: number
  readonly rareBytes: number
  readonly steps: number
  /** How many of the commits take away what lies side by side. */
  readonly sweeps: number
  /** How many of the commits drop a scope, beside what else they do. */
  readonly drops: number
  /** How many of the commits write key after key, in order, behind all others. */
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

/** A few short trees: everything happens, and an image is judged fast. */
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

/** One tree of many leaves, that split and join, and rarely are in memory. */
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

/** Keys so long that a handful makes inner nodes over inner nodes. */
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

/** Many trees, with names so long that the directory is a tree with several leaves. */
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

/** So little that all that a power cut could leave can be gone through. */
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

/** By how often they come. */
export const SHAPES: readonly Shape[] = [SMALL, SMALL, SMALL, SMALL, WIDE, DEEP, MANY, TINY, TINY]

/** Time as the machine has it: it goes on, and now and then it jumps back for a while. */
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

/** Every so often as slow as a real disk, every so often at once, by the seed; so that what may overtake does. */
export function unevenly(random: Random): (task: () => void) => void {
  return task => {
    const draw = random.next()
    void after(draw < 0.5 ? 0 : random.below(draw < 0.9 ? 30 : 300), task)
  }
}

/** So many turns of the microtask queue, and one. Awaiting one costs a fraction of `queueMicrotask`. */
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
