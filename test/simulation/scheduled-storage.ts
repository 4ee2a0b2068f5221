import type { Snapshot, Storage } from '../../src/engine/storage.ts'
import type { SimulatedScheduler } from './simulated-scheduler.ts'

/**
 * Wraps a storage so that each call waits for the scheduler before it starts and before it returns. The scheduler
 * thereby decides how callers interleave.
 */
export function scheduledStorage(storage: Storage, scheduler: SimulatedScheduler): Storage {
  const inTurn = async <T>(call: () => Promise<T>): Promise<T> => {
    await scheduler.turn()
    try {
      return await call()
    } finally {
      await scheduler.turn()
    }
  }
  return {
    get: (scope, tag, key) => inTurn(() => storage.get(scope, tag, key)),
    scan: range => inTurn(() => storage.scan(range)),
    snapshot: () => inTurn(async () => scheduledSnapshot(await storage.snapshot(), inTurn)),
    commit: commit => inTurn(() => storage.commit(commit)),
    update: (reads, step, options) => inTurn(() => storage.update(reads, step, options)),
    subscribe: (tree, listener, patience) => inTurn(() => storage.subscribe(tree, listener, patience)),
    scopes: range => inTurn(() => storage.scopes(range)),
    now: () => storage.now(),
    clock: () => storage.clock(),
    close: () => inTurn(() => storage.close()),
  }
}

function scheduledSnapshot(snapshot: Snapshot, inTurn: <T>(call: () => Promise<T>) => Promise<T>): Snapshot {
  return {
    version: snapshot.version,
    time: snapshot.time,
    clock: snapshot.clock,
    get: (scope, tag, key) => inTurn(() => snapshot.get(scope, tag, key)),
    scan: range => inTurn(() => snapshot.scan(range)),
    release: () => snapshot.release(),
  }
}
