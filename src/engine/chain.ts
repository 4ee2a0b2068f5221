import { type ByteString, u64 } from '../core/bytes.ts'
import { bodyPrefix, linkHash, ZERO_HASH } from '../core/hash.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { HEAD_KEY, headTag, parseScope } from './keys.ts'
import { headValue, type LogEntry, type LogHead, parseHead, parseLogEntry } from './log.ts'
import { pages } from './pages.ts'
import type { Reader, TreeId } from './storage.ts'

/** What is wrong with a log, if anything. */
export interface ChainReport {
  readonly isValid: boolean
  /** How many entries there are. */
  readonly length: number
  /** The first sequence at which something is wrong. */
  readonly firstInvalid?: number
  readonly error?: string
}

/** One look at the clock serves several entries. */
const ENTRIES_A_LOOK = 8

/**
 * Recomputes the chain of a log from its first entry to its head. A changed
 * entry has another hash; one that is missing, swapped or from elsewhere breaks
 * the link to its neighbour; and the head knows how many there were, so that
 * the last one can't be taken away either.
 */
export async function verifyChain(
  reader: Reader,
  log: TreeId,
  bodyHashOf: (body: ByteString) => ByteString,
): Promise<ChainReport> {
  const headEntry = await reader.get(log.scope, headTag(log.tag), HEAD_KEY)
  const head = parseHead(headEntry)
  let length = 0
  let prevHash = ZERO_HASH
  for await (const page of pages(reader, { scope: log.scope, tag: log.tag, once: true })) {
    for (const entry of page) {
      if (length % ENTRIES_A_LOOK === 0 && isSliceOver()) await nextSlice()
      const parsed = parseLogEntry(entry)
      const error = wrongWith(parsed, length, prevHash, bodyHashOf)
      if (error !== undefined) return invalid(length, await countFrom(reader, log, length), error)
      prevHash = parsed.hash
      length++
    }
  }
  if (head.length > length) return invalid(length, length, `event ${length} is missing`)
  if (head.length < length) return invalid(head.length, length, `event ${head.length} was never appended`)
  // As bytes, so that nothing can be put behind what is read of it.
  if (headEntry !== undefined && headEntry.value !== headValue({ length, hash: prevHash })) {
    return invalid(length - 1, length, `event ${length - 1} is not the log's head`)
  }
  return Object.freeze({ isValid: true, length })
}

/** Where the log stands. */
export async function headOf(reader: Reader, { scope, tag }: TreeId): Promise<LogHead> {
  return parseHead(await reader.get(scope, headTag(tag), HEAD_KEY))
}

function wrongWith(
  { sequence, prevHash, hash, time, body }: LogEntry,
  expected: number,
  before: ByteString,
  bodyHashOf: (body: ByteString) => ByteString,
): string | undefined {
  if (sequence !== expected) return `event ${expected} is missing`
  if (prevHash !== before) return `event ${expected} does not follow the event before it`
  // A time that no clock gives can't even be hashed.
  const isTime = Number.isSafeInteger(time)
  if (isTime && hash === linkHash(before, sequence, time, bodyHashOf(body))) return undefined
  return `event ${expected} is not what its hash says`
}

function invalid(firstInvalid: number, length: number, error: string): ChainReport {
  return Object.freeze({ isValid: false, length, firstInvalid, error })
}

/** How many entries there are, of which the first `known` were read already. */
async function countFrom(reader: Reader, { scope, tag }: TreeId, known: number): Promise<number> {
  let count = known
  for await (const page of pages(reader, { scope, tag, from: u64(known) })) count += page.length
  return count
}

/** Scopes whose part of the body hash is remembered. */
const PREFIXES_MAX = 1_000
const prefixes = new Map<ByteString, ByteString>()

/** What all body hashes of a scope have in common. */
export function bodyPrefixOf(scope: ByteString): ByteString {
  const known = prefixes.get(scope)
  if (known !== undefined) return known
  const { tenant, app, agent, run } = parseScope(scope)
  const prefix = bodyPrefix([tenant, app, agent, run])
  if (prefixes.size === PREFIXES_MAX) prefixes.clear()
  prefixes.set(scope, prefix)
  return prefix
}
