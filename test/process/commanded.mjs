// Opens a store and executes commands from standard input, one JSON array per line. Prints one line for each.
//
//   node commanded.mjs <folder> <options of openEmbedded>
//
// Commands:
//   ["put", key], ["get", key], ["checkpoint"], ["stats"], ["writable"], ["close"]
//   ["rotate", commits]  commits until a prepared segment is in use
//   ["exhaust"]          opens files until no descriptor is free
//   ["release"]          closes these files
import { closeSync, openSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setImmediate } from 'node:timers/promises'
import { openNodeDisk } from '../../dist/disk/node-disk.js'
import { openEmbedded } from '../../dist/embedded/open.js'
import { TAGS } from '../../dist/engine/keys.js'

const [folder, options] = process.argv.slice(2)
const say = facts => process.stdout.write(`${JSON.stringify(facts)}\n`)

const store = await openEmbedded({
  disk: openNodeDisk(folder),
  warn: () => undefined,
  ...JSON.parse(options),
})

const put = (key, value = 'x') =>
  store.commit({ operations: [{ op: 'put', scope: 's', tag: TAGS.kv, key, value }] })

const taken = []

const words = {
  get: async key => (await store.get('s', TAGS.kv, key))?.value,
  exhaust: async () => {
    try {
      for (;;) taken.push(openSync('/dev/null', 'r'))
    } catch (error) {
      return error.code
    }
  },
  release: async () => {
    for (const descriptor of taken.splice(0)) closeSync(descriptor)
  },
  writable: () => store.checkWritable(),
  put: async key => (await put(key)).status,
  checkpoint: () => store.checkpoint(),
  rotate: async commits => {
    for (let i = 0; i < commits; i++) await put(`rotate-${i}`, 'x'.repeat(1_000))
  },
  stats: async () => store.stats(),
  close: () => store.close(),
}

say({ code: 'OPEN' })
for await (const line of createInterface({ input: process.stdin })) {
  const [word, ...rest] = JSON.parse(line)
  // Each command starts in a new turn of the event loop, because a relaxed store checks its folder once per turn. Node may read two
  // lines in one turn if the second arrives quickly.
  await setImmediate()
  try {
    say({ value: await words[word](...rest) })
  } catch (error) {
    say({ name: error.name, code: error.code, message: error.message, details: error.details })
  }
}
