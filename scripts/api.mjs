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
/** All entries with declarations: the name that a program imports, and the declarations without their ending. */
const entries = Object.entries(exports).flatMap(([path, { types }]) =>
  types ? [{ name: `annals${path.slice(1)}`, file: /dist\/(.*)\.d\.ts/.exec(types)[1] }] : [],
)

/**
 * An entry imports types of another one by the package's name. The extractor takes for another package only what lies
 * under node_modules, so it gets its own copy of the names there.
 */
function importAlias({ name, file }) {
  const alias = join(root, 'temp/api/node_modules', `${name}.d.ts`)
  mkdirSync(dirname(alias), { recursive: true })
  writeFileSync(alias, `export * from '${join(root, 'dist', file)}.js'\n`)
  return [name, [alias]]
}
const paths = Object.fromEntries(entries.map(importAlias))

function isSound({ name, file }) {
  const configObject = ExtractorConfig.loadFile(configPath)
  const types = join(root, 'dist', `${file}.d.ts`)
  configObject.mainEntryPointFilePath = types
  configObject.apiReport.reportFileName = `${name.replace('/', '-')}.api.md`
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
  console.error(
    `api: ${unsound.map(({ name }) => name).join(', ')}: see above; \`npm run api:update\` writes the reports`,
  )
  process.exitCode = 1
}
