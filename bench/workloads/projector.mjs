import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { value } from '../data.mjs'
import { openStore } from '../peers/annals-ledger.mjs'

const EVENTS = 100_000
const BATCH = 1_000
const RUN = 'run-00000'
const LOAD_SECONDS = 5

/** Measures the replay of a run of 100,000 events into a snapshot, and the projector's lag while events keep coming. */
export async function run({ rounds }) {
  const folder = mkdtempSync(join(tmpdir(), 'annals-bench-'))
  const store = await openStore(folder, { durability: 'relaxed' })
  try {
    const events = [store.event(RUN, { eventType: 'RunStarted' })]
    for (let i = 0; events.length < EVENTS; i++) {
      const stepId = `step-${i}`
      events.push(store.event(RUN, { eventType: 'StepStarted', stepId }, value(i)))
      events.push(store.event(RUN, { eventType: 'StepCompleted', stepId }, value(i)))
    }
    for (let i = 0; i < EVENTS; i += BATCH) await store.ledger.appendEvents(events.slice(i, i + BATCH))
    const rates = []
    for (let round = 0; round < rounds; round++) {
      const since = performance.now()
      const { lastEventSeq } = await store.ledger.replaySnapshot(RUN)
      rates.push((lastEventSeq / (performance.now() - since)) * 1000)
    }
    return [
      row('run replayed into a snapshot', 'events/s', median(rates), { floor: 300_000 }, 1_000_000),
      row('projector lag, 64 in flight', 'ms', await lagUnderLoad(store), { atMost: 1_000 }),
    ]
  } finally {
    await store.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

/** The largest lag, sampled every 50 ms, once the projector has caught up with earlier events. */
async function lagUnderLoad(store) {
  while (store.ledger.stats().projector.lagMs > 0) await nextTick()
  let worst = 0
  const watch = setInterval(() => {
    worst = Math.max(worst, store.ledger.stats().projector.lagMs)
  }, 50)
  const end = performance.now() + LOAD_SECONDS * 1000
  let next = 0
  const lane = async () => {
    while (performance.now() < end) {
      const i = next++
      await store.appendOnce(`busy-${i % 64}`, value(i), `step-${i}`)
    }
  }
  await Promise.all(Array.from({ length: 64 }, lane))
  clearInterval(watch)
  return worst
}

function nextTick() {
  return new Promise(resolve => setTimeout(resolve, 1))
}

function row(title, unit, value, must, aim) {
  return { title, unit, ours: { name: 'annals', value }, must, aim }
}

function median(values) {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]
}
