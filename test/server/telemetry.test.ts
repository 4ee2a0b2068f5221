import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open } from '../../src/annals.ts'
import { testTelemetry } from './telemetry-suite.ts'

testTelemetry(
  'memory',
  async () => {
    const db = await open({ memory: true })
    return { db, close: () => db.close() }
  },
  { kind: 'memory', synchronous: 'relaxed' },
)

for (const durability of ['durable', 'relaxed'] as const) {
  testTelemetry(
    `a folder, ${durability}`,
    async () => {
      const path = mkdtempSync(join(tmpdir(), 'annals-telemetry-service-'))
      const db = await open({ path, durability })
      return {
        db,
        async close() {
          await db.close()
          rmSync(path, { recursive: true })
        },
      }
    },
    { kind: 'embedded', synchronous: durability },
  )
}
