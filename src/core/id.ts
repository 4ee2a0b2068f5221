import { randomUUID } from 'node:crypto'

/** Returns `count` random bytes. */
export type Random = (count: number) => Uint8Array

/** A UUID v4. A test passes its own `random`, so that the same seed gives the same ids. */
export function newId(random?: Random): string {
  if (random === undefined) return randomUUID()
  const bytes = Buffer.from(random(16))
  // RFC 9562: four bits are the version, two the variant, and the other 122 are random.
  bytes[6] = (bytes[6] & 0x0f) | 0x40
  bytes[8] = (bytes[8] & 0x3f) | 0x80
  const hex = bytes.toString('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20, 32)}`
}

/** The last id's time in milliseconds, and its count within that millisecond. */
let lastMs = 0
let lastCount = 0
/** The largest count: 12 bits follow the time. */
const COUNT_MAX = 0xfff

/** A UUID v7 (RFC 9562). Ids of one process sort in the order of their creation, ids of several by millisecond. */
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
/** 1 for each ASCII character that is a hexadecimal digit, of either case: RFC 9562 lets readers accept both. */
const IS_DIGIT = new Uint8Array(ASCII_CHARS)
for (const digit of '0123456789abcdefABCDEF') IS_DIGIT[digit.charCodeAt(0)] = 1

/** Whether a value is a UUID v4. A loop without branches is several times faster here than a regular expression. */
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

/** Whether version and variant are those of a UUID v4. */
function isOfVersion4(text: string): boolean {
  return text.charCodeAt(14) === DIGIT_4 && '89abAB'.includes(text[19])
}
