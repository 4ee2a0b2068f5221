import { inspect } from 'node:util'
import { hex } from '../core/bytes.ts'
import { Ticket } from '../engine/own-log.ts'
import type { Appended } from '../engine/storage.ts'

/** The place of an appended event. */
export interface EventReceipt {
  /** The event's place in its log. The first event has sequence 0. */
  readonly sequence: number
  /** The event's hash in hex (64 digits), which covers every event before it. */
  readonly hash: string
}

/** The receipt of an append. */
export function receiptOf(appended: Appended): EventReceipt {
  if (appended instanceof Ticket) return receiptToCome(appended)
  return Object.freeze({ sequence: appended.sequence, hash: hex(appended.hash) })
}

/** The receipt of an append in a transaction. The event has no place yet, so its fields are looked up when they are read. */
function receiptToCome(ticket: Ticket): EventReceipt {
  const receipt = {
    get sequence(): number {
      return ticket.sequence
    },
    get hash(): string {
      return hex(ticket.hash)
    },
  }
  // Printing the receipt must not read its fields, because reads are validated at the commit.
  const print = (): object | string =>
    ticket.isSettled ? { sequence: ticket.sequence, hash: hex(ticket.hash) } : '[an append to be committed]'
  Object.freeze(Object.defineProperty(receipt, inspect.custom, { value: print }))
  return receipt
}
