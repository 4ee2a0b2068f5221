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
const DIGIT_0 = 48
const DIGIT_4 = 52
const DIGIT_9 = 57
const LETTER_A = 97
const LETTER_F = 102
/** What an ASCII letter in lower case has, and one in upper case has not. */
const LOWER_CASE = 32

/**
 * Upper case too: RFC 9562 says to read both, and to write lower case. Char by char: that is a quarter of what a regular
 * expression takes for a text that was put together from pieces, as new ids are.
 */
export function isUuidV4(text: unknown): text is string {
  if (typeof text !== 'string' || text.length !== UUID_CHARS) return false
  for (let i = 0; i < UUID_CHARS; i++) {
    const char = text.charCodeAt(i)
    if (i === 8 || i === 13 || i === 18 || i === 23) {
      if (char !== DASH) return false
    } else if (hexDigit(char) === -1) return false
  }
  return text.charCodeAt(14) === DIGIT_4 && hexDigit(text.charCodeAt(19)) >> 2 === 2
}

/** What the digit stands for; -1 if it is none. */
function hexDigit(char: number): number {
  if (char >= DIGIT_0 && char <= DIGIT_9) return char - DIGIT_0
  const letter = char | LOWER_CASE
  return letter >= LETTER_A && letter <= LETTER_F ? letter - LETTER_A + 10 : -1
}
