import { defineConfig, type ViteUserConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { SkipReporter } from './test/skip-reporter.ts'

/** The slowest test files, half a minute or more each. They start first, so that none of them runs alone at the end. */
const SLOWEST: readonly string[] = [
  'test/crash/crash.test.ts',
  'test/postgres/suites.test.ts',
  'test/crash/faults.test.ts',
  'test/cli/serving.test.ts',
  'test/crash/mutants.test.ts',
  'test/process/kill.test.ts',
  'test/model/model.test.ts',
  'test/server/fuzz.test.ts',
  'test/server/tenants.test.ts',
  'test/corruption/bytes.test.ts',
  'src/postgres/store-suite.test.ts',
  'src/client-suite.test.ts',
  'test/launch/kill.test.ts',
]

class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rankOf = ({ moduleId }: TestSpecification): number => {
      const rank = SLOWEST.findIndex(path => moduleId.endsWith(`/${path}`))
      return rank < 0 ? SLOWEST.length : rank
    }
    return (await super.sort(files)).sort((one, other) => rankOf(one) - rankOf(other))
  }
}

const config: ViteUserConfig = defineConfig({
  test: {
    reporters: ['default', new SkipReporter()],
    globalSetup: ['test/postgres/global-setup.ts'],
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    // Each test file gets a process, not a thread, because tests kill their children, lock folders and measure memory.
    pool: 'forks',
    maxWorkers: 2,
    sequence: { sequencer: SlowestFirst },
    testTimeout: 120_000,
    hookTimeout: 120_000,
    coverage: {
      include: ['src/**/*.ts'],
      exclude: ['src/testing/**'],
      reporter: ['text-summary', 'json-summary', 'lcov'],
    },
  },
})

export default config
