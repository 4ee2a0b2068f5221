import { AnnalsError } from '../core/errors.ts'
import { openEmbedded } from '../embedded/open.ts'
import { History } from './crash-history.ts'
import {
  Clock,
  check,
  countIn,
  inTurns,
  runProgram,
  SHAPES,
  type Shape,
  tinyOptions,
} from './crash-workload.ts'
import { Random } from './random.ts'
import { SimulatedDisk } from './simulated-disk.ts'

/**
 * Stores whose files were damaged on the device: a flipped bit, a file cut
 * short, a file gone. Whoever opens one and reads it hears `CORRUPT`, or is told
 * what had to be left out, or finds everything. Never a wrong answer.
 */
export interface DamageReport {
  readonly seed: number
  stores: number
  damages: number
  /** How it came to light. */
  corrupt: number
  reported: number
  harmless: number
}

const DAMAGES_PER_STORE = 60

export async function damageCampaign(campaign: {
  readonly seed: number
  readonly stores: number
}): Promise<DamageReport> {
  const random = new Random(campaign.seed)
  const report = { seed: campaign.seed, stores: 0, damages: 0, corrupt: 0, reported: 0, harmless: 0 }
  while (report.stores < campaign.stores) await damageProgram(random.below(0x1_0000_0000), report)
  return report
}

/** One store, damaged in many ways, one at a time; everything follows from the seed. */
export async function damageProgram(seed: number, report: DamageReport): Promise<void> {
  report.stores++
  const random = new Random(seed)
  const shape = random.pick(SHAPES)
  const disk = new SimulatedDisk({ seed })
  const history = new History(shape.trees)
  const clock = new Clock()
  await runProgram(disk, history, {
    shape,
    random,
    durability: 'durable',
    steps: 12,
    clock,
    progress: { acknowledged: 0, durable: 0, issued: 0 },
    close: random.chance(0.3),
    sound: true,
    learned: () => undefined,
  })
  for (let i = 0; i < DAMAGES_PER_STORE; i++) {
    const damaged = disk.afterProcessCrash()
    const what = damage(damaged, random)
    try {
      report.damages++
      report[await outcomeOf(damaged, shape, history, clock.highest)]++
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      throw new Error(`damaged store with seed ${seed} (${shape.name}), ${what}: ${why}`, { cause: error })
    }
  }
}

function damage(disk: SimulatedDisk, random: Random): string {
  const { name, size } = random.pick(disk.files().filter(file => file.size > 0))
  const offset = random.below(size)
  const draw = random.next()
  if (draw < 0.6) {
    disk.flip(name, offset, 1 << random.below(8))
    return `a bit of ${name} flipped at ${offset}`
  }
  // That the newest segment is gone as a whole, nothing can tell.
  if (draw < 0.9 || name.startsWith('wal')) {
    disk.cut(name, offset)
    return `${name} cut at ${offset}`
  }
  disk.remove(name)
  return `${name} gone`
}

async function outcomeOf(
  disk: SimulatedDisk,
  shape: Shape,
  history: History,
  time: number,
): Promise<'corrupt' | 'reported' | 'harmless'> {
  try {
    const store = await inTurns(openEmbedded(tinyOptions(disk, shape, 'durable', () => time)))
    const count = await countIn(store, history)
    check(count !== undefined, 'there is a commit that never was')
    const wrong = await history.difference(store, count, time, 'hashed')
    check(wrong === undefined, String(wrong))
    await store.verify()
    const { tornTail, damagedManifests = [] } = store.recovery ?? {}
    if (count < history.commits.length) {
      check(
        tornTail !== undefined || damagedManifests.length > 0,
        `only ${count} commits are left, and nobody is told`,
      )
    }
    return store.recovery === undefined ? 'harmless' : 'reported'
  } catch (error) {
    if (error instanceof AnnalsError && error.code === 'CORRUPT') return 'corrupt'
    throw error
  }
}
