import { writeFileSync } from 'node:fs'
import { CONTRACTS } from '../dist/launch.js'

/** Writes docs/contracts/*.schema.json from the schemas in the code. `npm run contracts` builds first and formats afterwards. */
for (const [name, schema] of Object.entries(CONTRACTS)) {
  const file = new URL(`../docs/contracts/${name}.schema.json`, import.meta.url)
  writeFileSync(file, `${JSON.stringify(schema, undefined, 2)}\n`)
}
