/**
 * Compares the declarations of each entry of the package with its report in docs/api, and fails if they differ or
 * if an exported name has no JSDoc sentence: `node scripts/api.mjs`. With `--update` it writes the reports.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Extractor, ExtractorConfig } from '@microsoft/api-extractor'

const root = fileURLToPath(new URL('..', import.meta.url))
const isUpdate = process.argv.includes('--update')
const configPath = join(root, 'api-extractor.json')
const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
/** `index`, `postgres`, `launch` and so on: all entries with declarations. */
const entries = Object.values(exports).flatMap(({ types }) =>
  types ? [/dist\/(.*)\.d\.ts/.exec(types)[1]] : [],
)

/**
 * An entry imports types of another one by the package's name. The extractor takes for another package only what lies
 * under node_modules, so it gets its own copy of the names there.
 */
function importAlias(entry) {
  const file = join(root, 'temp/api/node_modules/annals', `${entry}.d.ts`)
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, `export * from '../../../../dist/${entry}.js'\n`)
  return [entry === 'index' ? 'annals' : `annals/${entry}`, [file]]
}
const paths = Object.fromEntries(entries.map(importAlias))

function isSound(entry) {
  const configObject = ExtractorConfig.loadFile(configPath)
  const types = join(root, 'dist', `${entry}.d.ts`)
  configObject.mainEntryPointFilePath = types
  configObject.apiReport.reportFileName = entry === 'index' ? 'annals.api.md' : `annals-${entry}.api.md`
  const { overrideTsconfig } = configObject.compiler
  overrideTsconfig.files = [types]
  overrideTsconfig.compilerOptions.paths = paths
  const config = ExtractorConfig.prepare({
    configObject,
    configObjectFullPath: configPath,
    packageJsonFullPath: join(root, 'package.json'),
  })
  return Extractor.invoke(config, { localBuild: isUpdate }).succeeded
}

// Every entry is checked, so that one run shows all faults.
const unsound = entries.filter(entry => !isSound(entry))
if (unsound.length > 0) {
  console.error(`api: ${unsound.join(', ')}: see above; \`npm run api:update\` writes the reports`)
  process.exitCode = 1
}
