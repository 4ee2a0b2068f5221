/**
 * Runs small campaigns with the engine in a folder until one fails, and prints the failure:
 * `node mutant-hunt.mjs <folder> <first campaign> <its first program, or ''> <seed of the others> <seconds>`.
 */
import { pathToFileURL } from 'node:url'

const [folder, first, program, seedOfOthers, seconds] = process.argv.slice(2)
const load = file => import(pathToFileURL(`${folder}/${file}.js`).href)
const { crashProgram, newReport } = await load('test/campaigns/crash-campaign')
const { faultProgram, newFaultReport } = await load('test/campaigns/fault-campaign')
const { fullDiskProgram } = await load('test/campaigns/full-disk-campaign')
const { damageCampaign } = await load('test/campaigns/damage-campaign')
const { replacedFolderCampaign } = await load('test/campaigns/replaced-folder-campaign')
const { Random } = await load('src/testing/random')

const random = new Random(Number(seedOfOthers))
/** Measures processor time instead of elapsed time, so that a busy machine finds the same bugs. */
const isOver = () => process.cpuUsage().user > Number(seconds) * 1e6
let images = 0
let campaign = first
/** The seed of the current program. If it finds the bug, a later hunt can begin with it. */
let begun = 0

async function crashes(seed) {
  const report = newReport(0)
  try {
    await crashProgram(seed, report, 0.4)
  } finally {
    images += report.images
  }
}

async function faults(seed) {
  const report = newFaultReport(0)
  try {
    await faultProgram(seed, { report, share: 0.06 })
  } finally {
    images += report.images.images
  }
}

/** Every call of these kinds fails once, and the images that are left get more checks than usual. */
function faultsOf(...kinds) {
  return async seed => {
    const report = newFaultReport(0)
    const only = ({ name }, kind) => name === 'EIO once' && kinds.includes(kind)
    try {
      await faultProgram(seed, { report, only, imageShare: 0.15 })
    } finally {
      images += report.images.images
    }
  }
}

/** These programs are short, so each seed runs many. The first one uses the seed itself. */
async function fullDisks(seed) {
  const seeds = new Random(seed)
  for (let disk = 0; disk < 60; disk++) {
    images++
    await fullDiskProgram(disk === 0 ? seed : seeds.below(0x1_0000_0000))
  }
}

async function damage(seed) {
  images += (await damageCampaign({ seed, stores: 3 })).damages
}

async function folders(seed) {
  images += (await replacedFolderCampaign({ seed, folders: 20 })).folders
}

const campaigns = {
  crashes,
  faults,
  'read faults': faultsOf('read'),
  'sync faults': faultsOf('sync', 'syncLater', 'syncFolder'),
  'full disks': fullDisks,
  damage,
  folders,
}
const others = Object.keys(campaigns).filter(name => name !== first)
// The first campaign has every second turn.
const order = others.flatMap(name => [first, name])

function tell(result) {
  console.log(JSON.stringify({ ...result, campaign, program: begun, images }))
  process.exit(0)
}
process.on('uncaughtException', error => tell({ failure: `an exception that nobody hears: ${error}` }))
process.on('unhandledRejection', reason => tell({ failure: `a rejection that nobody hears: ${reason}` }))

try {
  for (let round = 0; !isOver(); round++) {
    // The first four rounds run only the first campaign.
    campaign = round < 4 ? first : order[round % order.length]
    const known = round === 0 && program !== ''
    begun = known ? Number(program) : random.below(0x1_0000_0000)
    await campaigns[campaign](begun)
  }
} catch (error) {
  tell({ failure: error instanceof Error ? error.message : String(error) })
}
tell({})
