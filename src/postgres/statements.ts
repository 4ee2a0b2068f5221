import { readFileSync } from 'node:fs'

/** A statement from its own file. Each connection prepares it once under its name. */
export interface Statement {
  readonly name: string
  readonly text: string
}

function statement(name: string): Statement {
  const text = readFileSync(new URL(`./statements/${name}.sql`, import.meta.url), 'utf8')
  return { name: `annals_${name.replaceAll('-', '_')}`, text }
}

export const STATEMENTS: Readonly<
  Record<
    | 'commitBatch'
    | 'commitAppend'
    | 'holdAndRead'
    | 'commitHeld'
    | 'readPoints'
    | 'readRange'
    | 'readScopes'
    | 'isReadOnly'
    | 'snapshot'
    | 'listenTo'
    | 'untold'
    | 'waitForWriters'
    | 'sweep',
    Statement
  >
> = {
  commitBatch: statement('commit-batch'),
  commitAppend: statement('commit-append'),
  holdAndRead: statement('hold-and-read'),
  commitHeld: statement('commit-held'),
  readPoints: statement('read-points'),
  readRange: statement('read-range'),
  readScopes: statement('read-scopes'),
  isReadOnly: statement('is-read-only'),
  snapshot: statement('snapshot'),
  listenTo: statement('listen-to'),
  untold: statement('untold'),
  waitForWriters: statement('wait-for-writers'),
  sweep: statement('sweep'),
}
