import { Session } from 'node:inspector'
import { expect, test } from 'vitest'
import { Random } from '../../src/testing/random.ts'
import { crashProgram } from '../campaigns/crash-campaign.ts'

/** The functions that the crash campaign must execute, by file. */
const REACHED: Readonly<Record<string, readonly string[]>> = {
  'tree-changes.ts': ['splitInner', 'joinNext', 'dropChild', 'cutLast'],
  'leaf-changes.ts': ['splitLeaf', 'defer', 'applyNear', 'wroteTo', 'isDone'],
  'node-store.ts': ['load', 'seal', '#unload', 'retireWritten', 'trim'],
  'node-codec.ts': ['mergeLeaf', 'readInner'],
  'relocation.ts': ['relocate', 'visit'],
  'data-files.ts': ['#appendMerged', '#appendUnloaded', 'remove', 'sparse'],
  'checkpointer.ts': ['#freeze', '#freeGraves', '#relocateSparse', '#removeUnneeded'],
  'forest.ts': ['#drop', '#bury', '#findBehind', 'tagsOf', 'scopes'],
  'graves.ts': ['homesBelow'],
  'wal.ts': ['#create', '#link', '#moveOn', '#prepare', 'makeReady', 'rotate', 'removeBelow'],
  'wal-segment.ts': ['cutSegment', 'nextOf'],
  'wal-recovery.ts': ['replay', 'readChain', 'refuseUnnamed', 'goesOn', 'refuseIfDurable', 'cut'],
  'creation.ts': ['createStore', 'storeIdWithoutManifest'],
  'recovered-tail.ts': ['take', 'drain'],
  'backup.ts': ['copyCheckpoint'],
  'committer.ts': ['expire'],
  'group-commit.ts': ['hold', 'release'],
}

/** Enough programs for several of each shape, with few images of each. */
const PROGRAMS = 60
const SHARE = 0.02

test('the crash campaign reaches every part of the engine that a crash can damage', {
  timeout: 60_000,
}, async () => {
  const session = new Session()
  session.connect()
  session.post('Profiler.enable')
  session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  const random = new Random(1)
  for (let program = 0; program < PROGRAMS; program++) {
    await crashProgram(random.below(0x1_0000_0000), undefined, SHARE)
  }
  const counts = new Map<string, number>()
  session.post('Profiler.takePreciseCoverage', (error, covered) => {
    if (error) throw error
    for (const { url, functions } of covered.result) {
      const file = /\/embedded\/([a-z-]+\.ts)/.exec(url)?.[1]
      if (file === undefined) continue
      for (const { functionName, ranges } of functions) {
        const name = `${file} ${functionName}`
        counts.set(name, (counts.get(name) ?? 0) + ranges[0].count)
      }
    }
  })
  session.disconnect()
  const reached = Object.entries(REACHED).flatMap(([file, names]) =>
    names.map(name => [`${file} ${name}`, counts.get(`${file} ${name}`) ?? 0] as const),
  )
  console.log(reached.map(([name, count]) => `${name}: ${count}`).join('\n'))
  expect(reached.filter(([, count]) => count === 0)).toEqual([])
})
