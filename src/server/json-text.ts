import { AnnalsError } from '../core/errors.ts'
import { DIGITS_EXACT } from '../core/large-parse.ts'

const QUOTE = 0x22
const BACKSLASH = 0x5c
const MINUS = 0x2d
const ZERO = 0x30
const NINE = 0x39

/** The containers around a payload or value: a batch, its list, an event. */
const ENVELOPE_DEPTH = 4
/** The deepest nesting that a body may have. */
export const CONTAINERS_MAX: number = 64 + ENVELOPE_DEPTH

/**
 * Parses JSON and refuses what `JSON.parse` would accept but not keep: it rounds large integers. It also refuses deep nesting,
 * which would overflow recursive code.
 */
export function parseJsonText(text: string): unknown {
  if (mayMislead(text)) checkText(text)
  try {
    return JSON.parse(text)
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    throw notJson()
  }
}

/** A quick test that most texts pass, because they have few containers and short numbers. */
function mayMislead(text: string): boolean {
  let containers = 0
  for (let i = text.indexOf('{'); i >= 0; i = text.indexOf('{', i + 1))
    if (++containers > CONTAINERS_MAX) return true
  for (let i = text.indexOf('['); i >= 0; i = text.indexOf('[', i + 1))
    if (++containers > CONTAINERS_MAX) return true
  return hasLongNumber(text)
}

/**
 * Whether the text has a run of digits that may be rounded, in a number or in a string. A run of n digits covers a position
 * that is a multiple of n, so only every nth char is read. Infinite numbers are refused when they are stored.
 */
function hasLongNumber(text: string): boolean {
  for (let i = DIGITS_EXACT - 1; i < text.length; i += DIGITS_EXACT) {
    if (!isDigitAt(text, i)) continue
    let start = i
    while (isDigitAt(text, start - 1)) start--
    let end = i + 1
    while (isDigitAt(text, end)) end++
    if (end - start >= DIGITS_EXACT) return true
  }
  return false
}

function isDigitAt(text: string, i: number): boolean {
  const char = text.charCodeAt(i)
  return char >= ZERO && char <= NINE
}

/** Checks depth and numbers outside of strings. `JSON.parse` reports invalid JSON. */
function checkText(text: string): void {
  let depth = 0
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i)
    if (char === QUOTE) i = endOfString(text, i)
    else if (char === 0x7b || char === 0x5b) {
      if (++depth > CONTAINERS_MAX) throw refused(`more than ${CONTAINERS_MAX} nested containers`)
    } else if (char === 0x7d || char === 0x5d) depth--
    else if (char === MINUS || (char >= ZERO && char <= NINE)) i = endOfNumber(text, i)
  }
}

function endOfString(text: string, start: number): number {
  let end = text.indexOf('"', start + 1)
  while (end > 0 && isEscaped(text, end)) end = text.indexOf('"', end + 1)
  return end < 0 ? text.length : end
}

function isEscaped(text: string, quote: number): boolean {
  let backslashes = 0
  while (text.charCodeAt(quote - 1 - backslashes) === BACKSLASH) backslashes++
  return backslashes % 2 === 1
}

const NUMBER = /-?\d+(\.\d+)?([eE][+-]?\d+)?/y

function endOfNumber(text: string, start: number): number {
  NUMBER.lastIndex = start
  const [number] = NUMBER.exec(text) ?? ['']
  if (number.length >= DIGITS_EXACT || /[eE]/.test(number)) checkNumber(number)
  return start + Math.max(1, number.length) - 1
}

export function checkNumber(number: string): void {
  const value = Number(number)
  if (!Number.isFinite(value)) throw refused(`the number ${number.slice(0, 32)} is too large`)
  // 12345678901234567890.0 is an integer too.
  const [, whole] = /^(-?\d+)(?:\.0+)?(?:[eE][+-]?0+)?$/.exec(number) ?? []
  if (whole !== undefined && BigInt(whole) !== BigInt(value)) {
    throw refused(`the number ${number.slice(0, 32)} would be rounded; send it as a string`)
  }
}

export function notJson(): AnnalsError {
  return refused('it is not JSON')
}

export function refused(reason: string): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', `the body cannot be read as JSON: ${reason}`, {
    name: 'body',
    reason,
  })
}
