import { isPlainObject } from './json.ts'

/** The difference between two requests. */
export interface Difference {
  /** 0 for equal requests. A leaf that is entirely different counts 1. */
  readonly distance: number
  /** A text for each leaf that differs, such as `temperature: recorded 0, asked 0.7`. */
  readonly words: readonly string[]
}

type Leaf = string | number | boolean | null

/** Members that do not affect the answer. */
const IGNORED = /^(stream|stream_options)(\.|$)/

export function difference(recorded: unknown, asked: unknown): Difference {
  const [before, after] = [leavesOf(recorded), leavesOf(asked)]
  let distance = 0
  const words: string[] = []
  for (const path of new Set([...before.keys(), ...after.keys()])) {
    if (IGNORED.test(path)) continue
    const [was, is] = [before.get(path), after.get(path)]
    if (was === is) continue
    distance += typeof was === 'string' && typeof is === 'string' ? 1 - similarity(was, is) : 1
    words.push(inWords(path, was, is))
  }
  return { distance, words }
}

/** The recorded request that differs least from the one asked for; the first of equals. */
export function nearestRequest<T>(
  recorded: readonly T[],
  bodyOf: (item: T) => unknown,
  asked: unknown,
): { item: T; difference: Difference } | undefined {
  let best: { item: T; difference: Difference } | undefined
  for (const item of recorded) {
    const found = difference(bodyOf(item), asked)
    if (best === undefined || found.distance < best.difference.distance) best = { item, difference: found }
  }
  return best
}

function leavesOf(value: unknown, path = '', leaves: Map<string, Leaf> = new Map()): Map<string, Leaf> {
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) leavesOf(item, `${path}[${index}]`, leaves)
  } else if (isPlainObject(value)) {
    for (const [name, member] of Object.entries(value)) {
      leavesOf(member, path === '' ? name : `${path}.${name}`, leaves)
    }
  } else leaves.set(path, value as Leaf)
  return leaves
}

/** The length of the common start and end, as a share of the longer text. */
function similarity(a: string, b: string): number {
  const start = commonStart(a, b)
  const longest = Math.max(a.length, b.length)
  const room = Math.min(a.length, b.length) - start
  let end = 0
  while (end < room && a[a.length - 1 - end] === b[b.length - 1 - end]) end++
  return (start + end) / longest
}

function commonStart(a: string, b: string): number {
  const length = Math.min(a.length, b.length)
  let start = 0
  while (start < length && a[start] === b[start]) start++
  return start
}

const SHOWN_CHARS = 40

function inWords(path: string, was: Leaf | undefined, is: Leaf | undefined): string {
  if (was === undefined) return `${path}: not recorded, asked ${shown(is)}`
  if (is === undefined) return `${path}: recorded ${shown(was)}, not asked`
  if (typeof was !== 'string' || typeof is !== 'string')
    return `${path}: recorded ${shown(was)}, asked ${shown(is)}`
  const start = commonStart(was, is)
  if (start <= SHOWN_CHARS / 2) return `${path}: recorded ${shown(was)}, asked ${shown(is)}`
  const from = start - SHOWN_CHARS / 4
  return `${path}, from character ${start + 1}: recorded ${shown(was, from)}, asked ${shown(is, from)}`
}

function shown(leaf: Leaf | undefined, from = 0): string {
  if (typeof leaf !== 'string') return String(leaf)
  const part = leaf.slice(from, from + SHOWN_CHARS).toWellFormed()
  return JSON.stringify(`${from > 0 ? '…' : ''}${part}${from + SHOWN_CHARS < leaf.length ? '…' : ''}`)
}
