import pg from 'pg'

/** Returns the function that ends a turn with a CHECKPOINT. Otherwise its dirty pages would be written in another's turn. */
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
