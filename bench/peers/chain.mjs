import { hash } from 'node:crypto'

export const NO_HASH = '0'.repeat(64)

/**
 * The hashing that Annals does for each event, for the peers: one SHA-256 of the body, and one that links it to the previous
 * event, its sequence and its time.
 */
export function link(previous, sequence, time, body) {
  return hash('sha256', `${previous}:${sequence}:${time}:${hash('sha256', body, 'hex')}`, 'hex')
}

/** The text that is hashed as the body of an event. */
export function bodyOf(run, type, text) {
  return `${run}\n${type}\n${text}`
}
