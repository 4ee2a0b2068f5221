import { randomUUID } from 'node:crypto'

/** Gives that many random bytes. */
export type Random = (count: number) => Uint8Array

/** A UUID v4. With `random`, its bytes come from there: a test that replays its seed gets the same ids. */
export function newId(random?: Random): string {
  if (random === undefined) return randomUUID()
  const bytes = Buffer.from(random(16))
  // RFC 9562: four bits say the version, two the variant; the other 122 are random.
  bytes[6] = (bytes[6] & 0x0f) | 0x40
  bytes[8] = (bytes[8] & 0x3f) | 0x80
  const hex = bytes.toString('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20, 32)}`
}

/** The last one given out, as milliseconds and a count within them. */
let lastMs = 0
let lastCount = 0
/** Of the 12 bits behind the time. */
const COUNT_MAX = 0xfff

/** A UUID v7 (RFC 9562): ids of one process sort in the order in which they were made, others by the millisecond. */
export function newOrderedId(now: number, random?: Random): string {
  if (now > lastMs) {
    lastMs = now
    lastCount = 0
  } else if (++lastCount > COUNT_MAX) {
    lastMs++
    lastCount = 0
  }
  const time = lastMs.toString(16).padStart(12, '0').slice(-12)
  const count = lastCount.toString(16).padStart(3, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}-7${count}-${newId(random).slice(19)}`
}

const UUID_CHARS = 36
const DASH = 45
const DIGIT_4 = 52
const ASCII_CHARS = 128
/** For each ASCII character 1 if it is a hexadecimal digit. Upper case too: RFC 9562 says to read both, and to write lower case. */
const IS_DIGIT = new Uint8Array(ASCII_CHARS)
for (const digit of '0123456789abcdefABCDEF') IS_DIGIT[digit.charCodeAt(0)] = 1

/**
 * Char by char, without a branch in between: that is a fraction of what a regular expression takes for a text that was put together
 * from pieces, as new ids are.
 */
export function isUuidV4(text: unknown): text is string {
  if (typeof text !== 'string' || text.length !== UUID_CHARS) return false
  let digits = 0
  let bits = 0
  for (let i = 0; i < UUID_CHARS; i++) {
    const char = text.charCodeAt(i)
    bits |= char
    digits += IS_DIGIT[char & (ASCII_CHARS - 1)]
  }
  return bits < ASCII_CHARS && digits === UUID_CHARS - 4 && hasDashes(text) && isOfVersion4(text)
}

function hasDashes(text: string): boolean {
  return isDashAt(text, 8) && isDashAt(text, 13) && isDashAt(text, 18) && isDashAt(text, 23)
}

function isDashAt(text: string, at: number): boolean {
  return text.charCodeAt(at) === DASH
}

/** With the variant of RFC 9562. */
function isOfVersion4(text: string): boolean {
  return text.charCodeAt(14) === DIGIT_4 && '89abAB'.includes(text[19])
}
