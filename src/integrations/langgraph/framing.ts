import { AnnalsError } from '../../index.ts'

const NEWLINE = 0x0a
const encoder = new TextEncoder()
const decoder = new TextDecoder()

/** One byte string of a line, which must not contain a newline, and a payload. */
export function framed(line: string, payload: Uint8Array): Uint8Array {
  const start = encoder.encode(`${line}\n`)
  const bytes = new Uint8Array(start.length + payload.length)
  bytes.set(start)
  bytes.set(payload, start.length)
  return bytes
}

/** The inverse of `framed`. The payload is a view of the bytes. */
export function unframed(bytes: Uint8Array): readonly [line: string, payload: Uint8Array] {
  const end = bytes.indexOf(NEWLINE)
  if (end < 0) throw new AnnalsError('CORRUPT', 'a value of the LangGraph adapter has no header line')
  return [decoder.decode(bytes.subarray(0, end)), bytes.subarray(end + 1)]
}
