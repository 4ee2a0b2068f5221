import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pg from 'pg'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const BUILT = fileURLToPath(new URL('.built', import.meta.url))
/** The settings that make an acknowledged commit survive a power cut. They are PostgreSQL's defaults. */
const DURABLE = { fsync: 'on', synchronous_commit: 'on', full_page_writes: 'on' }

/** Starts the PostgreSQL server of the tests, from npm, for the benchmark alone, and passes its connection string to `work`. */
export async function withServer(work) {
  const { TestServer } = await import(compiled('test/postgres/server.ts'))
  const server = await TestServer.start()
  try {
    await checkDurable(server.connectionString)
    return await work(server.connectionString)
  } finally {
    await server.remove()
  }
}

/** Compiles the test harness, because it is TypeScript and Node 20 runs only JavaScript. */
function compiled(file) {
  const tsc = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc')
  const options = [
    '--ignoreConfig',
    '--skipLibCheck',
    '--types',
    'node',
    '--target',
    'es2023',
    '--module',
    'nodenext',
  ]
  execFileSync(process.execPath, [tsc, ...options, '--outDir', BUILT, join(ROOT, file)], {
    cwd: ROOT,
    stdio: ['ignore', 2, 2],
  })
  return new URL(`file://${join(BUILT, 'server.js')}`).href
}

/** Creates a database for one contestant and returns its connection string. */
export async function newDatabase(connectionString, name) {
  const client = new pg.Client({ connectionString })
  await client.connect()
  await client.query(`CREATE DATABASE ${name}`)
  await client.end()
  const url = new URL(connectionString)
  url.pathname = `/${name}`
  return url.href
}

async function checkDurable(connectionString) {
  const client = new pg.Client({ connectionString })
  await client.connect()
  for (const [name, wanted] of Object.entries(DURABLE)) {
    const { rows } = await client.query('SELECT current_setting($1) AS value', [name])
    if (rows[0].value !== wanted) throw new Error(`${name} is ${rows[0].value}: this server is not durable`)
  }
  await client.end()
}
