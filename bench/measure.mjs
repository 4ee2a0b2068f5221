import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { checkAnswers } from './peers/check.mjs'
import { nextMessage, startJob, syncFolder, withFolder } from './processes.mjs'
import { ofRunEvents } from './run-event.mjs'

/** A lane reads the clock after this many steps. More would be too coarse for syncs, fewer would slow down gets. */
const STEPS_PER_LOOK = 8

export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/**
 * Measures contestants against each other. Each has its own process, so they share neither heap nor compiled code. They take
 * turns: first a warm-up of `warmUp` rounds, then one round after the other. Work that a turn leaves behind (background work,
 * unwritten pages, garbage) is finished before the next turn. Returns each contestant's median rate by name.
 */
export async function duel(module, index, { contestants, warmUp = 0.5 }, { rounds, seconds }) {
  return withFolder(async folder => {
    const started = []
    const rates = new Map()
    try {
      for (const contestant of contestants) {
        const argument = { module, index, contestant, folder: `${folder}/${started.length}` }
        const job = startJob('./measure.mjs', 'contend', argument, { execArgv: ['--expose-gc'] })
        started.push(job)
        await nextMessage(job, 'ready')
        syncFolder(folder)
        rates.set(contestant.name, [])
      }
      for (let round = 0; round <= rounds; round++) {
        for (const [i, job] of started.entries()) {
          const answer = nextMessage(job, 'rate')
          job.child.send({ round: seconds * (round === 0 ? warmUp : 1) * 1000 })
          const rate = await answer
          syncFolder(folder)
          if (round > 0) rates.get(contestants[i].name).push(rate)
        }
      }
    } finally {
      for (const { child } of started) {
        if (child.exitCode !== null || child.signalCode !== null) continue
        child.kill('SIGKILL')
        await once(child, 'exit')
      }
    }
    return new Map([...rates].map(([name, list]) => [name, { value: median(list), rounds: list }]))
  })
}

/** The contestant's process: it opens a store, checks its answers, prepares the data, and runs rounds on request. */
export async function contend({ module, index, contestant, folder }) {
  const { openStore } = await import(`./peers/${contestant.peer}.mjs`)
  const { cases } = await import(module)
  const { inFlight, perStep = 1, prepare, verify = () => true } = cases[index]
  mkdirSync(folder)
  const opened = await openStore(folder, { inFlight, ...contestant })
  const store = contestant.runEvents ? ofRunEvents(opened) : opened
  // Of several processes on the same data, only the first can run the checks: the others would find its data.
  if (!contestant.isChecked) await checkAnswers(store)
  const step = await prepare(store, contestant)
  const conflictsBefore = store.conflicts?.()
  process.on('message', async ({ round }) => {
    try {
      const rate = await runFor(round, inFlight, step, verify)
      await store.settle()
      globalThis.gc()
      process.send({ rate: rate * perStep, conflicts: store.conflicts?.() - conflictsBefore })
    } catch (error) {
      process.send({ error: error.stack }, () => process.exit(1))
    }
  })
  await store.settle()
  process.send({ ready: true })
  return new Promise(() => {})
}

/**
 * Returns steps per second with `inFlight` lanes, each of which awaits its step before the next. Once a millisecond all lanes
 * let the event loop turn, as real programs do. Otherwise a store that answers within a turn could postpone its background
 * work until after the round.
 */
async function runFor(milliseconds, inFlight, step, verify) {
  let steps = 0
  let turn
  const start = performance.now()
  const end = start + milliseconds
  let now = start
  let turned = start
  const lane = async number => {
    do {
      for (let i = 0; i < STEPS_PER_LOOK; i++) {
        const answer = await step(number)
        if (!verify(answer)) throw new Error(`wrong answer: ${JSON.stringify(answer)}`)
      }
      steps += STEPS_PER_LOOK
      now = performance.now()
      if (now - turned < 1) continue
      turn ??= nextTurn()
      await turn
      turn = undefined
      turned = performance.now()
    } while (now < end)
  }
  await Promise.all(Array.from({ length: inFlight }, (_, number) => lane(number)))
  return (steps / (performance.now() - start)) * 1000
}
