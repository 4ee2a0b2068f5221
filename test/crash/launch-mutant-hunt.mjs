/**
 * Runs a campaign with the package in a folder until it fails, and prints why:
 * `node launch-mutant-hunt.mjs <folder> <campaign> <first seed> <seed of the others> <seconds>`.
 */
import { pathToFileURL } from 'node:url'

const [folder, campaign, first, seedOfOthers, seconds] = process.argv.slice(2)
const load = file => import(pathToFileURL(`${folder}/${file}.js`).href)
const { crashLaunch, newLaunchReport } = await load('test/campaigns/launch-campaign')
const { ENDING_LAUNCH, SMALL_LAUNCH, TINY_LAUNCH } = await load('test/campaigns/launch-world')
const { crashOutbox } = await load('test/campaigns/outbox-campaign')
const { crashRegistry } = await load('test/campaigns/registry-campaign')
const { Random } = await load('src/testing/random')

const random = new Random(Number(seedOfOthers))
/** Measures processor time instead of elapsed time, so that a busy machine finds the same bugs. */
const isOver = () => process.cpuUsage().user > Number(seconds) * 1e6
let images = 0

function launches(shape) {
  return async seed => {
    const report = newLaunchReport(seed)
    try {
      await crashLaunch(seed, report, shape, isOver)
    } finally {
      images += report.images
    }
  }
}

const campaigns = {
  'tiny launch': launches(TINY_LAUNCH),
  'ending launch': launches(ENDING_LAUNCH),
  'small launch': launches(SMALL_LAUNCH),
  outbox: async seed => {
    images += await crashOutbox(seed)
  },
  registry: async seed => {
    images += await crashRegistry(seed)
  },
}

let seed = Number(first)
function tell(result) {
  console.log(JSON.stringify({ ...result, seed, images }))
  process.exit(0)
}
process.on('uncaughtException', error => tell({ failure: `an exception that nobody hears: ${error}` }))
process.on('unhandledRejection', reason => tell({ failure: `a rejection that nobody hears: ${reason}` }))

try {
  for (; !isOver(); seed = random.below(0x1_0000_0000)) await campaigns[campaign](seed)
} catch (error) {
  tell({ failure: error instanceof Error ? error.message : String(error) })
}
tell({})
