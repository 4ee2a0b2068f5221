import {
  configDefaults,
  defineConfig,
  type TestProjectInlineConfiguration,
  type ViteUserConfig,
} from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { SkipReporter } from './test/skip-reporter.ts'

/** Files that take long, longest first. A long file that starts last would run alone at the end. */
const SLOWEST: readonly string[] = [
  'test/postgres/suites.test.ts',
  'src/client-suite.test.ts',
  'test/cli/serving.test.ts',
  'test/server/tenants.test.ts',
  'test/launch/kill.test.ts',
  'test/cli/newcomer.test.ts',
  'test/postgres/hostile-role.test.ts',
  'src/ledger-suite.test.ts',
  'src/annals-suite.test.ts',
  'src/embedded/store-suite.test.ts',
  'src/postgres/store-suite.test.ts',
  'test/postgres/isolation.test.ts',
  'test/browser/page.test.ts',
  'test/skipping.test.ts',
  'test/examples.test.ts',
  'test/process/kill.test.ts',
  'test/process/ledger.test.ts',
  'test/process/primitives.test.ts',
  'test/postgres/faults.test.ts',
  'test/launch/telemetry.test.ts',
  'test/server/many-streams.test.ts',
  'test/server/fuzz.test.ts',
  'test/docs.test.ts',
  'test/server/telemetry-large.test.ts',
  'src/telemetry/client.test.ts',
  'test/crash/mutants.test.ts',
  'test/crash/faults.test.ts',
  'test/crash/crash.test.ts',
  'test/crash/launch-mutants.test.ts',
  'test/corruption/bytes.test.ts',
  'test/ledger/crash.test.ts',
  'test/crash/launch-crash.test.ts',
  'test/model/model.test.ts',
  'test/event-loop.test.ts',
]

/** Keeps the order of groups and projects, and starts the slowest files of a group first. */
class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rankOf = ({ moduleId, project }: TestSpecification): readonly [group: number, rank: number] => {
      const rank = SLOWEST.findIndex(path => moduleId.endsWith(`/${path}`))
      return [project.config.sequence.groupOrder, rank < 0 ? SLOWEST.length : rank]
    }
    return (await super.sort(files)).sort((one, other) => {
      const [group, rank] = rankOf(one)
      const [otherGroup, otherRank] = rankOf(other)
      return group - otherGroup || rank - otherRank
    })
  }
}

/** Files that compute all the time: two of them keep two cores busy. All others wait for disks, processes and servers. */
const CAMPAIGNS: readonly string[] = [
  'test/{crash,model,corruption,isolation,simulation}/**/*.test.ts',
  'test/{event-loop,event-loop-bytes,isolation,costs}.test.ts',
  'test/ledger/crash.test.ts',
]
const COMPUTING_UNITS: readonly string[] = [
  'src/{core,engine,testing}/**/*.test.ts',
  'src/embedded/leaves.test.ts',
]
/** Files of src/ that change the process or measure it, and so need one of their own. */
const ISOLATED: readonly string[] = [
  'src/disk/{lock,node-disk}.test.ts',
  'src/embedded/{checkpoints,put-times}.test.ts',
]

/** Files of test/ that leave the process as they found it, and can share one. */
const SHARING: readonly string[] = [
  'test/{bundle,copying,golden}/*.test.ts',
  'test/ledger/{audit-window,contract,deleted-run,edges,faults,fencing,file-registry,replay}.test.ts',
  'test/postgres/{access,appends,bundle,copying,driver,idempotent-writes,migrations,projecting}.test.ts',
  'test/postgres/{read-only,sweep,telemetry,updates,views}.test.ts',
]

function project(
  name: string,
  test: { readonly include: readonly string[]; readonly exclude?: readonly string[] } & Schedule,
): TestProjectInlineConfiguration {
  const { include, exclude = [], isolate, maxWorkers, groupOrder } = test
  return {
    test: {
      name,
      include: [...include],
      exclude: [...configDefaults.exclude, ...exclude],
      // Processes, not threads: tests kill their children, lock folders and measure memory.
      pool: 'forks',
      isolate,
      maxWorkers,
      sequence: { groupOrder },
      testTimeout: 120_000,
      hookTimeout: 120_000,
    },
  }
}

interface Schedule {
  /** Whether each file gets a process of its own. Starting one takes longer than most unit tests. */
  readonly isolate: boolean
  readonly maxWorkers: number
  readonly groupOrder: number
}

/** More workers than cores, for files that mostly wait. */
const WAITING = { maxWorkers: 4, groupOrder: 0 }
const BUSY = { maxWorkers: 2, groupOrder: 1 }

const config: ViteUserConfig = defineConfig({
  test: {
    reporters: ['default', new SkipReporter()],
    globalSetup: ['test/postgres/global-setup.ts'],
    sequence: { sequencer: SlowestFirst },
    coverage: { include: ['src/**/*.ts'], exclude: ['src/testing/**'], reporter: ['text-summary', 'lcov'] },
    projects: [
      project('systems', {
        include: ['test/**/*.test.ts', ...ISOLATED],
        exclude: [...CAMPAIGNS, ...SHARING],
        isolate: true,
        ...WAITING,
      }),
      project('units', {
        include: ['src/**/*.test.ts', ...SHARING],
        exclude: [...COMPUTING_UNITS, ...ISOLATED],
        isolate: false,
        ...WAITING,
      }),
      project('campaigns', {
        include: CAMPAIGNS,
        isolate: true,
        ...BUSY,
      }),
      project('computing units', {
        include: COMPUTING_UNITS,
        isolate: false,
        ...BUSY,
      }),
    ],
  },
})

export default config
