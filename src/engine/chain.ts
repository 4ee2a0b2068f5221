import { type ByteString, u64 } from '../core/bytes.ts'
import { bodyPrefix, linkHash, ZERO_HASH } from '../core/hash.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { HEAD_KEY, headTag, parseScope } from './keys.ts'
import { headValue, type LogEntry, type LogHead, parseHead, parseLogEntry } from './log.ts'
import { pages } from './pages.ts'
import type { Reader, TreeId } from './storage.ts'

/** The result of verifying a log. */
export interface ChainReport {
  /** Whether every entry and the head match their hashes. */
  readonly isValid: boolean
  /** The number of entries in the log. */
  readonly length: number
  /** The sequence of the first invalid or missing entry; absent if the log is valid. */
  readonly firstInvalid?: number
  /** What is wrong with that entry; absent if the log is valid. */
  readonly error?: string
}

/** How many entries are verified between two checks of the clock. */
const ENTRIES_A_LOOK = 8

/**
 * Recomputes the hash chain of a log from its first entry to its head. A changed
 * entry has another hash. A missing, moved or foreign entry breaks the link to
 * its neighbour. The head stores the log's length, so missing entries at the end
 * are detected too.
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
  // Compares all bytes, because `parseHead` ignores bytes after the hash.
  if (headEntry !== undefined && headEntry.value !== headValue({ length, hash: prevHash })) {
    return invalid(length - 1, length, `event ${length - 1} is not the log's head`)
  }
  return Object.freeze({ isValid: true, length })
}

/** Reads the head of a log: its length and its last hash. */
export async function headOf(reader: Reader, { scope, tag }: TreeId): Promise<LogHead> {
  return parseHead(await reader.get(scope, headTag(tag), HEAD_KEY))
}

/** What is wrong with the entry; undefined if it is valid. */
function wrongWith(
  { sequence, prevHash, hash, time, body }: LogEntry,
  expected: number,
  before: ByteString,
  bodyHashOf: (body: ByteString) => ByteString,
): string | undefined {
  if (sequence !== expected) return `event ${expected} is missing`
  if (prevHash !== before) return `event ${expected} does not follow the event before it`
  // A damaged time may not be a safe integer, which `linkHash` cannot hash.
  const isTime = Number.isSafeInteger(time)
  if (isTime && hash === linkHash(before, sequence, time, bodyHashOf(body))) return undefined
  return `event ${expected} does not match its hash`
}

function invalid(firstInvalid: number, length: number, error: string): ChainReport {
  return Object.freeze({ isValid: false, length, firstInvalid, error })
}

/** Counts the entries of the log. The first `known` have been read already. */
async function countFrom(reader: Reader, { scope, tag }: TreeId, known: number): Promise<number> {
  let count = known
  for await (const page of pages(reader, { scope, tag, from: u64(known) })) count += page.length
  return count
}

/** How many scopes the cache of body prefixes holds. */
const PREFIXES_MAX = 1_000
const prefixes = new Map<ByteString, ByteString>()

/** The bytes that every body hash of a scope begins with. Cached, because all appends of a run need them. */
export function bodyPrefixOf(scope: ByteString): ByteString {
  const known = prefixes.get(scope)
  if (known !== undefined) return known
  const { tenant, app, agent, run } = parseScope(scope)
  const prefix = bodyPrefix([tenant, app, agent, run])
  if (prefixes.size === PREFIXES_MAX) prefixes.clear()
  prefixes.set(scope, prefix)
  return prefix
}
