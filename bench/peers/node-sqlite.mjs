import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { sqliteStore } from './sqlite.mjs'

/** The SQLite that is built into Node. */
export async function openStore(folder, options) {
  return sqliteStore(new Connection(join(folder, 'sqlite.db')), options)
}

/** The part of better-sqlite3's interface that the store uses, over `node:sqlite`. */
class Connection {
  #db

  constructor(path) {
    this.#db = new DatabaseSync(path)
  }

  pragma(text) {
    this.#db.exec(`PRAGMA ${text}`)
  }

  exec(sql) {
    this.#db.exec(sql)
  }

  close() {
    this.#db.close()
  }

  prepare(sql) {
    const statement = this.#db.prepare(sql)
    statement.pluck = () => plucked(statement)
    statement.raw = () => raw(statement)
    return statement
  }

  transaction(work) {
    const run = begin => {
      const beginStatement = this.#db.prepare(begin)
      const commit = this.#db.prepare('COMMIT')
      return (...args) => {
        beginStatement.run()
        try {
          const result = work(...args)
          commit.run()
          return result
        } catch (error) {
          this.#db.exec('ROLLBACK')
          throw error
        }
      }
    }
    return Object.assign(run('BEGIN'), { immediate: run('BEGIN IMMEDIATE') })
  }
}

/** The statement with its rows replaced by their first column. */
function plucked(statement) {
  const [column] = statement.columns?.() ?? []
  const first = column === undefined ? row => Object.values(row)[0] : row => row[column.name]
  return {
    get(...args) {
      const row = statement.get(...args)
      return row === undefined ? undefined : first(row)
    },
    all: (...args) => statement.all(...args).map(first),
  }
}

/** The statement with its rows as arrays. */
function raw(statement) {
  if (statement.setReturnArrays === undefined) {
    return { all: (...args) => statement.all(...args).map(row => Object.values(row)) }
  }
  statement.setReturnArrays(true)
  return statement
}
