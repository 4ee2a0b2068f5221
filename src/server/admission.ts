import { FairShare } from './fair-share.ts'
import type { ServerSettings } from './options.ts'
import type { ServerContext } from './server-env.ts'

/**
 * Limits heavy requests (verification, bundles, audits, long pages, large bodies) and the bytes of large bodies, in total and
 * for each tenant, so that one tenant cannot block the others. A request releases its share when it is answered.
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

/** Waits for a slot for heavy work. A request takes at most one. */
export async function admitHeavy(c: ServerContext): Promise<void> {
  if (c.get('isHeavy') === true) return
  c.set('isHeavy', true)
  hold(c, await c.get('admission').heavy.take(tenantOf(c), 1, c.req.raw.signal))
}

/** Waits until there is room for the bytes of a body. */
export async function admitBody(c: ServerContext, bytes: number): Promise<void> {
  hold(c, await c.get('admission').bodyBytes.take(tenantOf(c), bytes, c.req.raw.signal))
}

/**
 * Runs a part of heavy work in its own slot. A streamed answer does this for each piece, so it holds no slot while it waits for
 * its client.
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

/** Releases the slots and bytes of a request. */
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
