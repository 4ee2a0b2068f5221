import { open } from '../../dist/index.js'
import { AnnalsLevel } from '../../dist/integrations/abstract-level.js'
import { storeOver } from './classic-level.mjs'

/** Annals through its adapter for abstract-level. */
export async function openStore(folder, { durability }) {
  const db = await open({ path: folder, durability })
  return {
    ...storeOver(new AnnalsLevel(db, { scope: 'level' })),
    settle: () => db.checkpoint(),
    checkpoint: () => db.checkpoint(),
    close: () => db.close(),
  }
}
