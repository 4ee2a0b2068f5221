import { FairShare } from './fair-share.ts'
import type { ServerSettings } from './options.ts'
import type { ServerContext } from './server-env.ts'

/**
 * Which requests may work now. Heavy ones (verification, bundles, audits, long pages, large bodies) have a limited number of
 * slots, and large bodies a limited number of bytes, for each tenant and in all. So one tenant never takes the server from
 * the others. A request gives back what it has when it is answered.
 */
export class Admission {
  readonly heavy: FairShare
  readonly bodyBytes: FairShare

  constructor(settings: ServerSettings) {
    const { heavyMax, heavyPerTenant, heavyWaitMs: waitMs, bodyBytesMax, bodyBytesPerTenant } = settings
    this.heavy = new FairShare({ of: 'heavy requests', total: heavyMax, perTenant: heavyPerTenant, waitMs })
    this.bodyBytes = new FairShare({
      of: 'bytes in large bodies',
      total: bodyBytesMax,
      perTenant: bodyBytesPerTenant,
      waitMs,
    })
  }
}

/** Waits for a slot for heavy work; a request takes one at most. */
export async function admitHeavy(c: ServerContext): Promise<void> {
  if (c.get('isHeavy') === true) return
  c.set('isHeavy', true)
  hold(c, await c.get('admission').heavy.take(tenantOf(c), 1, c.req.raw.signal))
}

/** Waits for room for the bytes of a body. */
export async function admitBody(c: ServerContext, bytes: number): Promise<void> {
  hold(c, await c.get('admission').bodyBytes.take(tenantOf(c), bytes, c.req.raw.signal))
}

/**
 * Does a part of heavy work in a slot of its own. An answer that is sent piece by piece does so for each piece: while it waits
 * for its reader it holds no slot.
 */
export async function inSlot<T>(c: ServerContext, work: () => Promise<T>): Promise<T> {
  const { heavy } = c.get('admission')
  const release = await heavy.take(tenantOf(c), 1, c.req.raw.signal, Number.POSITIVE_INFINITY)
  try {
    return await work()
  } finally {
    release()
  }
}

/** Gives back what the request has. */
export function releaseAll(c: ServerContext): void {
  for (const release of c.get('held') ?? []) release()
}

function hold(c: ServerContext, release: () => void): void {
  const held = c.get('held')
  if (held === undefined) c.set('held', [release])
  else held.push(release)
}

function tenantOf(c: ServerContext): string {
  return c.get('credential').tenant
}
