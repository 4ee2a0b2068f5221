import pg from 'pg'

/** Makes what ends a turn: pages that are not yet on the device would be written in another's. */
export function checkpoints(connectionString) {
  return async () => {
    const client = new pg.Client({ connectionString })
    await client.connect()
    await client.query('CHECKPOINT')
    await client.end()
  }
}

export function openPool(connectionString, clients) {
  const pool = new pg.Pool({ connectionString, max: clients })
  pool.on('error', error => console.error(error.message))
  return pool
}
