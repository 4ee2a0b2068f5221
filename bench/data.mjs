/** The data of every workload: the same for each contestant, from a fixed seed. */

export const VALUE_BYTES = 400
const VALUES = 1024
export const ENTRIES_PER_RUN = 1000

/** Mulberry32: small, fast, and good enough to pick keys. */
export function random(seed) {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 0x1_0000_0000
  }
}

/** What is stored: an object of 400 bytes as JSON; `value(i)` differs from its neighbours. */
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

/** Such a value that no other entry has: a store must not live on everything being the same. */
export function ownValue(i) {
  const { text, ...rest } = value(i)
  const mark = String(i)
  return { ...rest, text: mark + text.slice(mark.length) }
}

/** Whether it is such a value, whole and with its parts: one that is made only when looked at would be too cheap. */
export function isValue(found) {
  return found?.status === 'ok' && found.text.length > 300 && values[found.step].tool === found.tool
}

export function runName(i) {
  return `run-${String(i).padStart(5, '0')}`
}

export function keyName(i) {
  return `key-${String(i).padStart(8, '0')}`
}

/** Entry `i` of a store whose data came run by run, a thousand entries in each. */
export function placeByRun(i) {
  return [runName(Math.floor(i / ENTRIES_PER_RUN)), keyName(i % ENTRIES_PER_RUN)]
}

/** Entry `i` of a store that is one single tree. */
export function placeInOneTree(i) {
  return ['run-00000', keyName(i)]
}

/** `length` numbers below `below`, uniformly. */
export function randomIndexes(length, below, seed) {
  const next = random(seed)
  return Uint32Array.from({ length }, () => Math.floor(next() * below))
}

/** 0 … count-1 in random order. */
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

/** The dedupe key of the n-th event of a writer, each its own: as in a run, steps begin and end one after the other. */
export function stepKey(n, writer = 0) {
  return `step-${writer}-${n >> 1}${n % 2 === 0 ? '' : COMPLETED}`
}

/** What such a key says as a run event. */
export function stepOf(key) {
  return key.endsWith(COMPLETED)
    ? { eventType: 'StepCompleted', stepId: key.slice(0, -COMPLETED.length) }
    : { eventType: 'StepStarted', stepId: key }
}
