import { sha256Hex } from '../../src/core/hash.ts'
import { newId } from '../../src/core/id.ts'
import { FileRegistry } from '../../src/ledger/event-id-registry.ts'
import { Random } from '../../src/testing/random.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { unevenly } from './crash-shapes.ts'
import { check } from './crash-workload.ts'
import { randomBytesOf } from './launch-world.ts'

/**
 * L22: claims and adopts event ids, and crashes at every disk call. Afterwards the registry must return the ids that it
 * has returned before.
 */

const OPERATIONS = 16
const IMAGES_MAX = 32
const GENERATIONS = 3

/** The returned id of each key; undefined while a claim is pending, because a crash may have stored it or not. */
type Given = ReadonlyMap<string, string | undefined>

/** Runs the campaign for a seed. Returns the number of checked images. */
export async function crashRegistry(seed: number): Promise<number> {
  const random = new Random(seed)
  try {
    const disk = new SimulatedDisk({ seed, sectorBytes: 64, later: unevenly(random.fork()) })
    return await generation(disk, new Map(), random, 1)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(`registry with seed ${seed}: ${why}`, { cause: error })
  }
}

async function generation(
  disk: SimulatedDisk,
  before: Given,
  random: Random,
  depth: number,
): Promise<number> {
  const images: { disk: SimulatedDisk; given: Given; what: string }[] = []
  let given = before
  disk.onCall = ({ kind, phase, index }) => {
    if (kind === 'read' || kind === 'size' || kind === 'open' || !random.chance(depth === 1 ? 1 : 0.2)) return
    const moment = `at the ${phase} of call ${index}, ${kind}`
    images.push({ disk: disk.afterProcessCrash(random.fork()), given, what: `process crash ${moment}` })
    for (const cut of disk.powerCuts(random.fork(), IMAGES_MAX))
      images.push({ disk: cut, given, what: `power cut ${moment}` })
  }
  const registry = await FileRegistry.open(disk.handle(), 'ids', 'ids')
  const bytes = randomBytesOf(random.fork())
  const give = async (key: string, isAdopted: boolean): Promise<void> => {
    const known = given.get(key)
    const id = newId(bytes)
    if (isAdopted || known === undefined) given = new Map([...given, [key, undefined]])
    const answer = isAdopted ? id : await registry.claim('run-1', sha256Hex(key), id)
    if (isAdopted) await registry.adopt('run-1', sha256Hex(key), id)
    check(isAdopted || known === undefined || answer === known, `L22: ${key} has another id now`)
    given = new Map([...given, [key, answer]])
  }
  for (let step = 0; step < OPERATIONS; step++) {
    const keys = Array.from({ length: 1 + random.below(3) }, (_, i) => `key-${step % 5}-${i}`)
    const isAdopted = random.chance(0.2)
    await Promise.all(keys.map(key => give(key, isAdopted)))
  }
  await registry.close()
  disk.onCall = undefined
  let judged = 0
  for (const image of images) judged += await judge(image, random, depth)
  return judged
}

async function judge(
  { disk, given, what }: { disk: SimulatedDisk; given: Given; what: string },
  random: Random,
  depth: number,
): Promise<number> {
  try {
    const registry = await FileRegistry.open(disk.handle(), 'ids', 'ids')
    for (const [key, id] of given) {
      const offered = newId(randomBytesOf(random))
      const answer = await registry.claim('run-1', sha256Hex(key), offered)
      check(id === undefined || answer === id, `L22: ${key} had the id ${id}, and has ${answer}`)
      // A killed process has written this id. It was returned now, so it must be durable.
      if (id === undefined && answer !== offered) await checkDurable(disk, key, answer, random)
    }
    await registry.close()
    if (depth === GENERATIONS || !random.chance(0.005)) return 1
    return 1 + (await generation(disk, given, random, depth + 1))
  } catch (error) {
    const cause = error instanceof Error ? error.message : String(error)
    throw new Error(`${what}: ${cause}`, { cause: error })
  }
}

async function checkDurable(disk: SimulatedDisk, key: string, id: string, random: Random): Promise<void> {
  for (const cut of disk.powerCuts(random.fork(), IMAGES_MAX)) {
    const registry = await FileRegistry.open(cut, 'ids', 'ids')
    const answer = await registry.claim('run-1', sha256Hex(key), newId(randomBytesOf(random)))
    await registry.close()
    check(answer === id, `L22: ${key} was given the id ${id}, and has ${answer} after a power cut`)
  }
}
