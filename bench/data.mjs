/** The data of every workload. They come from a fixed seed and are the same for every contestant. */

export const VALUE_BYTES = 400
const VALUES = 1024
export const ENTRIES_PER_RUN = 1000

/** The generator Mulberry32, which is small, fast, and good enough to pick keys. */
export function random(seed) {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 0x1_0000_0000
  }
}

/** The stored values: objects of 400 bytes as JSON. `value(i)` differs from its neighbours. */
const values = Array.from({ length: VALUES }, (_, i) => {
  const next = random(i + 1)
  const start = `{"step":${i},"tool":"search","status":"ok","text":"`
  let text = ''
  while (start.length + text.length < VALUE_BYTES - 2) text += Math.floor(next() * 36).toString(36)
  return JSON.parse(`${start}${text}"}`)
})

export function value(i) {
  return values[i % VALUES]
}

/** A value that no other entry has, so that no store profits from equal values. */
export function ownValue(i) {
  const { text, ...rest } = value(i)
  const mark = String(i)
  return { ...rest, text: mark + text.slice(mark.length) }
}

/** Checks that a value is complete. Reading its parts also forces stores that decode lazily to do their work. */
export function isValue(found) {
  return found?.status === 'ok' && found.text.length > 300 && values[found.step].tool === found.tool
}

export function runName(i) {
  return `run-${String(i).padStart(5, '0')}`
}

export function keyName(i) {
  return `key-${String(i).padStart(8, '0')}`
}

/** The place of entry `i` in a store with a thousand entries in each run. */
export function placeByRun(i) {
  return [runName(Math.floor(i / ENTRIES_PER_RUN)), keyName(i % ENTRIES_PER_RUN)]
}

/** The place of entry `i` in a store with one single run. */
export function placeInOneTree(i) {
  return ['run-00000', keyName(i)]
}

/** `length` uniformly distributed numbers below `below`. */
export function randomIndexes(length, below, seed) {
  const next = random(seed)
  return Uint32Array.from({ length }, () => Math.floor(next() * below))
}

/** The numbers 0 to count - 1 in random order. */
export function shuffled(count, seed) {
  const next = random(seed)
  const order = Uint32Array.from({ length: count }, (_, i) => i)
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(next() * (i + 1))
    const kept = order[i]
    order[i] = order[j]
    order[j] = kept
  }
  return order
}

const COMPLETED = ' completed'

/** The unique dedupe key of a writer's n-th event. As in a run, steps start and complete one after the other. */
export function stepKey(n, writer = 0) {
  return `step-${writer}-${n >> 1}${n % 2 === 0 ? '' : COMPLETED}`
}

/** The type and step of the run event with this dedupe key. */
export function stepOf(key) {
  return key.endsWith(COMPLETED)
    ? { eventType: 'StepCompleted', stepId: key.slice(0, -COMPLETED.length) }
    : { eventType: 'StepStarted', stepId: key }
}
