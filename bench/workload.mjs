import { duel } from './measure.mjs'

/** Runs one workload, or those of its cases that belong to one of the numbers, and gives the rows of its table. */
export async function runWorkload(name, numbers, settings) {
  const module = `./workloads/${name}.mjs`
  const { cases, run } = await import(module)
  if (run) return (await run(settings)).map(row => ({ workload: name, number: numbers[0], ...row }))
  const rows = []
  for (const [index, one] of cases.entries()) {
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
