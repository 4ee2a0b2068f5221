/**
 * Runs small campaigns with the engine in a folder until one fails, and prints
 * what it was: `node mutant-hunt.mjs <folder> <first campaign> <seconds>`.
 */
import { pathToFileURL } from 'node:url'

const [folder, first, seconds] = process.argv.slice(2)
const load = file => import(pathToFileURL(`${folder}/testing/${file}.js`).href)
const { crashProgram, newReport } = await load('crash-campaign')
const { faultProgram, newFaultReport } = await load('fault-campaign')
const { fullDiskCampaign } = await load('full-disk-campaign')
const { damageCampaign } = await load('damage-campaign')
const { Random } = await load('random')

// Always the same, so that the score is.
const random = new Random(20_260_701)
const seed = () => random.below(0x1_0000_0000)
const end = Date.now() + Number(seconds) * 1000
let images = 0
let campaign = first

async function crashes() {
  const report = newReport(0)
  try {
    await crashProgram(seed(), report, 0.4)
  } finally {
    images += report.images
  }
}

async function faults() {
  const report = newFaultReport(0)
  try {
    await faultProgram(seed(), { report, share: 0.06 })
  } finally {
    images += report.images.images
  }
}

/** Calls of some kinds fail once, all of them, and what that leaves behind gets a closer look. */
function faultsOf(...kinds) {
  return async () => {
    const report = newFaultReport(0)
    const only = ({ name }, kind) => name === 'EIO once' && kinds.includes(kind)
    try {
      await faultProgram(seed(), { report, only, imageShare: 0.15 })
    } finally {
      images += report.images.images
    }
  }
}

async function fullDisks() {
  images += (await fullDiskCampaign({ seed: seed(), disks: 60 })).disks
}

async function damage() {
  images += (await damageCampaign({ seed: seed(), stores: 3 })).damages
}

const campaigns = {
  crashes,
  faults,
  'read faults': faultsOf('read'),
  'sync faults': faultsOf('sync', 'syncLater', 'syncFolder'),
  'full disks': fullDisks,
  damage,
}
const others = Object.keys(campaigns).filter(name => name !== first)
// The first one comes every second time.
const order = others.flatMap(name => [first, name])

function tell(result) {
  console.log(JSON.stringify({ ...result, campaign, images }))
  process.exit(0)
}
process.on('uncaughtException', error => tell({ failure: `an exception that nobody hears: ${error}` }))
process.on('unhandledRejection', reason => tell({ failure: `a rejection that nobody hears: ${reason}` }))

try {
  for (let round = 0; Date.now() < end; round++) {
    // Several of the first, before any of the others.
    campaign = round < 4 ? first : order[round % order.length]
    await campaigns[campaign]()
  }
} catch (error) {
  tell({ failure: error instanceof Error ? error.message : String(error) })
}
tell({})
