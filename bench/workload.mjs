import { isBuiltin } from 'node:module'
import { duel } from './measure.mjs'

/** Node 22.13 and later have SQLite built in (22.5 and later with --experimental-sqlite). The benchmark runs without it too. */
const NODE_SQLITE = isBuiltin('node:sqlite') ? 'node:sqlite' : undefined

/** Adds `node:sqlite`, without a goal, to a case that has better-sqlite3. */
function withNodeSqlite(one) {
  const model = one.contestants.find(({ name }) => name === 'better-sqlite3')
  if (NODE_SQLITE === undefined || model === undefined) return one
  return {
    ...one,
    contestants: [...one.contestants, { ...model, name: NODE_SQLITE, peer: 'node-sqlite' }],
    compare: [...one.compare, { theirs: NODE_SQLITE }],
  }
}

/** Runs one workload, or only its cases with one of the numbers, and returns the rows of its table. */
export async function runWorkload(name, numbers, settings) {
  const module = `./workloads/${name}.mjs`
  const { cases, run } = await import(module)
  if (run) return (await run(settings)).map(row => ({ workload: name, number: numbers[0], ...row }))
  const rows = []
  for (const [index, declared] of cases.entries()) {
    const one = withNodeSqlite(declared)
    if (!numbers.includes(one.number)) continue
    console.error(`${name}: ${one.title}`)
    const rates = await duel(module, index, one, settings)
    for (const { ours = 'annals', theirs, must, aim } of one.compare) {
      rows.push({
        workload: name,
        number: one.number,
        title: one.title,
        unit: one.unit ?? 'ops/s',
        ours: { name: ours, ...rates.get(ours) },
        theirs: { name: theirs, ...rates.get(theirs) },
        ratio: rates.get(ours).value / rates.get(theirs).value,
        must: must === undefined ? undefined : { atLeast: must },
        aim,
      })
    }
    for (const { ours, floor } of one.floors ?? []) {
      rows.push({
        workload: name,
        number: one.number,
        title: one.title,
        unit: one.unit ?? 'ops/s',
        ours: { name: ours, ...rates.get(ours) },
        must: { floor },
      })
    }
  }
  return rows
}
