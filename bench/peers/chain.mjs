import { hash } from 'node:crypto'

export const NO_HASH = '0'.repeat(64)

/**
 * What Annals does for each event, for the peers to do too: one SHA-256 over the
 * body, one that links it to the event before it, to its place and its time.
 */
export function link(previous, sequence, time, body) {
  return hash('sha256', `${previous}:${sequence}:${time}:${hash('sha256', body, 'hex')}`, 'hex')
}

/** What of an event is hashed as its body. */
export function bodyOf(run, type, text) {
  return `${run}\n${type}\n${text}`
}
