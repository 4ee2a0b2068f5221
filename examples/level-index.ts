/**
 * Notes with an index of their words, in the API of LevelDB. A note and its index entries are written in one batch, so they
 * never contradict each other, even if the process dies.
 *
 *   npm install annals abstract-level
 *   node level-index.ts ./notes          (Node 22.18 or later; before: npx tsx level-index.ts ./notes)
 */
import { open } from 'annals'
import { AnnalsLevel } from 'annals/abstract-level'

const db = await open({ path: process.argv[2] ?? './notes' })
const level = new AnnalsLevel(db, { scope: 'notes' })
const notes = level.sublevel('note')
const words = level.sublevel('word')

async function write(id: string, text: string): Promise<void> {
  const old = (await notes.get(id)) ?? ''
  const batch = level.batch()
  for (const word of old.split(' ')) batch.del(`${word}/${id}`, { sublevel: words })
  batch.put(id, text, { sublevel: notes })
  for (const word of text.split(' ')) batch.put(`${word}/${id}`, '', { sublevel: words })
  await batch.write()
}

async function find(word: string): Promise<string[]> {
  const keys = await words.keys({ gt: `${word}/`, lt: `${word}0` }).all()
  return keys.map(key => key.slice(word.length + 1))
}

await write('note-1', 'a tree has a root')
await write('note-2', 'a tree with one hash')
await write('note-2', 'a hash is a number')
await write('note-3', 'every tree has leaves')
for (const word of ['tree', 'hash']) console.log(`${word}: ${(await find(word)).join(', ')}`)
const [last] = await notes.keys({ reverse: true, limit: 1 }).all()
console.log(`the last note is ${last}`)
await db.close()
