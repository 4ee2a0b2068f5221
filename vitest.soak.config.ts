import { defineConfig, type ViteUserConfig } from 'vitest/config'

/** The long campaigns: they check the same properties as `npm test`, with far more cases. */
const config: ViteUserConfig = defineConfig({
  test: {
    include: [
      'test/**/*.soak.ts',
      'test/server/fuzz.test.ts',
      'test/{bundle/bundle,examples,ledger/duplicates}.test.ts',
      'test/{isolation,isolation/cycle-checker,postgres/isolation}.test.ts',
      'test/process/{kill,ledger,primitives}.test.ts',
      'test/integrations/langgraph-kill.test.ts',
    ],
    globalSetup: ['test/postgres/global-setup.ts'],
    env: { ANNALS_SOAK: '1' },
    pool: 'forks',
    maxWorkers: 2,
    // Hours, but bounded: a campaign that hangs must fail.
    testTimeout: 4 * 3_600_000,
    hookTimeout: 60_000,
  },
})

export default config
