import type { Reporter, TestModule, Vitest } from 'vitest/node'
import { mustRunAll } from './skipping.ts'

/** Fails a full test run in CI if any test was skipped, whatever the reason. */
export class SkipReporter implements Reporter {
  #vitest: Vitest | undefined

  onInit(vitest: Vitest): void {
    this.#vitest = vitest
  }

  onTestRunEnd(modules: readonly TestModule[]): void {
    // With -t, vitest counts all tests that do not match as skipped.
    if (!mustRunAll() || this.#vitest?.config.testNamePattern !== undefined) return
    const skipped = modules.flatMap(module =>
      [...module.children.allTests('skipped')].map(test => `${module.relativeModuleId} > ${test.fullName}`),
    )
    if (skipped.length === 0) return
    console.error(`CI is set, so no test may be skipped. ${skipped.length} were:\n  ${skipped.join('\n  ')}`)
    process.exitCode = 1
  }
}
