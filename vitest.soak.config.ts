import { defineConfig, type ViteUserConfig } from 'vitest/config'

/** The long campaign: the same properties as `npm test`, with far more cases. */
const config: ViteUserConfig = defineConfig({
  test: {
    include: ['test/**/*.soak.ts'],
    pool: 'forks',
    maxWorkers: 2,
    // Hours, not for ever: a hung campaign must still fail.
    testTimeout: 4 * 3_600_000,
    hookTimeout: 60_000,
  },
})

export default config
