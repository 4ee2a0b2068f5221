import { validate } from '@langchain/langgraph-checkpoint-validation'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { AnnalsSaver } from '../../src/integrations/langgraph.ts'
import { type OpenedStore, onEachEngine } from './langgraph-stores.ts'

/** Runs LangGraph's validation suite of checkpointers on each engine. */

// The suite expects the functions of its test runner as globals.
Object.assign(globalThis, { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it })

onEachEngine((engine, openStore) => {
  const opened = new Map<AnnalsSaver, OpenedStore>()
  validate({
    checkpointerName: `AnnalsSaver on ${engine}`,
    async createCheckpointer() {
      const store = await openStore()
      const saver = new AnnalsSaver(store.db)
      opened.set(saver, store)
      return saver
    },
    async destroyCheckpointer(saver: AnnalsSaver) {
      await opened.get(saver)?.close()
      opened.delete(saver)
    },
  })
})
