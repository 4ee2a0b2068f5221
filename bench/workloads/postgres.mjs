import { runName, value } from '../data.mjs'
import { duel, median } from '../measure.mjs'
import { newDatabase, withServer } from '../postgres-server.mjs'
import { nextMessage, startJob, withFolder } from '../processes.mjs'

const RUNS = 100
const PROCESSES = 4

/** Appends to one run after the other. Each event has its own dedupe key, also across processes. */
async function appendOnce(store) {
  const runs = Array.from({ length: RUNS }, (_, i) => runName(i))
  for (const run of runs) await store.begin?.(run)
  let next = 0
  return () => {
    const i = next++
    return store.appendOnce(runs[i % RUNS], value(i), `step-${process.pid}-${i}`)
  }
}

const LEDGER = 'annals-postgres-ledger'
const PORT = 'annals-postgres'
const INSERT = { name: 'INSERT, 32 clients', peer: 'postgres-insert' }
const EMMETT = { name: 'emmett-postgresql', peer: 'emmett-postgresql' }

/** The storage engine does what the peers do: it stores a payload under a key and links it. */
function appends(inFlight, goals) {
  return caseOf('append with key and chain', { name: 'annals', peer: PORT }, {}, inFlight, goals)
}

/** The ledger stores run events, and the peers store the same events under the same keys. */
function runEvents(inFlight, goals) {
  return caseOf('run event', { name: 'annals', peer: LEDGER }, { runEvents: true }, inFlight, goals)
}

function caseOf(what, ours, peers, inFlight, { insert, emmett }) {
  return {
    title: `${what} on PostgreSQL, ${inFlight} in flight over ${RUNS} runs`,
    inFlight,
    prepare: appendOnce,
    verify: ({ duplicate }) => duplicate === false,
    contestants: [ours, { ...INSERT, ...peers }, { ...EMMETT, ...peers }],
    compare: [
      { theirs: INSERT.name, ...insert },
      { theirs: EMMETT.name, ...emmett },
    ],
  }
}

/** Bounds and aims by the number in flight, against INSERT and emmett. */
const APPENDS = {
  1: { insert: { must: 0.7, aim: 1 } },
  64: { insert: { must: 2.3, aim: 3 }, emmett: { must: 9 } },
  512: { insert: { must: 5, aim: 8 }, emmett: { must: 18 } },
}
const RUN_EVENTS = {
  1: {},
  64: { insert: { must: 1.5, aim: 2.5 } },
  512: { insert: { must: 3.5, aim: 6 } },
}

export const cases = [
  ...Object.entries(APPENDS).map(([inFlight, goals]) => appends(Number(inFlight), goals)),
  ...Object.entries(RUN_EVENTS).map(([inFlight, goals]) => runEvents(Number(inFlight), goals)),
]
/** The work of each of several processes. */
const TOGETHER = 4

/** Runs the duels on one server, then several processes on the same runs. */
export async function run(settings) {
  return withServer(async connectionString => {
    const rows = []
    for (const [index, one] of cases.entries()) {
      console.error(`postgres: ${one.title}`)
      const contestants = []
      for (const contestant of one.contestants) {
        const database = `case_${index}_${contestants.length}`
        contestants.push({ ...contestant, connectionString: await newDatabase(connectionString, database) })
      }
      const rates = await duel('./workloads/postgres.mjs', index, { contestants }, settings)
      for (const compared of one.compare) rows.push(rowOf(one.title, rates, compared))
    }
    rows.push(...(await together(connectionString, settings)))
    return rows
  })
}

function rowOf(title, rates, { ours = 'annals', theirs, must, aim }) {
  return {
    title,
    unit: 'ops/s',
    ours: { name: ours, ...rates.get(ours) },
    theirs: { name: theirs, ...rates.get(theirs) },
    ratio: rates.get(ours).value / rates.get(theirs).value,
    must: must === undefined ? undefined : { atLeast: must },
    aim,
  }
}

/**
 * Compares four processes on the same runs with one process. Commits wait for each other, and none has to be retried. The
 * single process has its own database. In the same database it would be a fifth process that follows the others' changes.
 */
async function together(server, { rounds, seconds }) {
  const title = `run event on PostgreSQL, ${PROCESSES} processes on the same ${RUNS} runs`
  console.error(`postgres: ${title}`)
  return withFolder(async folder => {
    const [own, shared] = [await newDatabase(server, 'alone'), await newDatabase(server, 'together')]
    const jobs = []
    const crowd = []
    const alone = []
    let conflicts = 0
    try {
      for (let i = 0; i <= PROCESSES; i++) {
        const connectionString = i === 0 ? own : shared
        const contestant = { peer: LEDGER, connectionString, isChecked: i > 1 }
        const argument = {
          module: './workloads/postgres.mjs',
          index: TOGETHER,
          contestant,
          folder: `${folder}/${i}`,
        }
        jobs.push(startJob('./measure.mjs', 'contend', argument, { execArgv: ['--expose-gc'] }))
        await nextMessage(jobs[i], 'ready')
      }
      const turn = async (some, share) => {
        const answers = some.map(job =>
          Promise.all([nextMessage(job, 'rate'), nextMessage(job, 'conflicts')]),
        )
        for (const { child } of some) child.send({ round: seconds * 1000 * share })
        const answered = await Promise.all(answers)
        conflicts = Math.max(conflicts, ...answered.map(([, count]) => count))
        return answered.reduce((sum, [rate]) => sum + rate, 0)
      }
      for (let round = 0; round <= rounds; round++) {
        const one = await turn(jobs.slice(0, 1), round === 0 ? 0.5 : 1)
        const all = await turn(jobs.slice(1), round === 0 ? 0.5 : 1)
        if (round === 0) continue
        alone.push(one)
        crowd.push(all)
      }
    } finally {
      for (const { child } of jobs) child.kill('SIGKILL')
    }
    const ours = { name: 'annals', value: median(crowd), rounds: crowd }
    const theirs = { name: 'one process', value: median(alone), rounds: alone }
    const ratio = ours.value / theirs.value
    return [
      { title, unit: 'ops/s', ours, theirs, ratio, must: { atLeast: 0.6 }, aim: 2 },
      {
        title: `${title}: retries`,
        unit: 'commits',
        ours: { name: 'annals', value: conflicts },
        note: 'in all rounds',
        must: { atMost: 0 },
      },
    ]
  })
}
