// Opens a store in a separate process and prints the result as one line of JSON.
//
//   node visitor.mjs <folder> <settings>
//
// Settings: `readOnly`; `uid`: the user to change to; `stay`: keep the store open until killed.
import { openNodeDisk } from '../../dist/disk/node-disk.js'
import { openEmbedded } from '../../dist/embedded/open.js'
import { TAGS } from '../../dist/engine/keys.js'

const [folder, settingsJson] = process.argv.slice(2)
const { readOnly = false, uid, stay = false } = JSON.parse(settingsJson)
if (uid !== undefined) {
  // All modules are loaded by now, because this user may not be able to read the project.
  process.setgroups([])
  process.setgid(uid)
  process.setuid(uid)
}

const say = facts => process.stdout.write(`${JSON.stringify(facts)}\n`)
const put = { op: 'put', scope: 's', tag: TAGS.kv, key: 'visitor', value: String(process.pid) }

/** The result of an action, or the name and code of its error. */
async function attempt(action) {
  try {
    return { value: await action() }
  } catch (error) {
    return { name: error.name, code: error.code, message: error.message, details: error.details }
  }
}

const start = performance.now()
const opened = await attempt(async () => {
  return openEmbedded({ disk: openNodeDisk(folder, { readOnly }), readOnly, warn: () => undefined })
})
const ms = performance.now() - start
if (opened.value === undefined) say({ ...opened, ms })
else {
  const store = opened.value
  const read = await attempt(() => store.get('s', TAGS.kv, 'k1'))
  const wrote = await attempt(() => store.commit({ operations: [put] }))
  say({ code: 'OPEN', ms, read: read.value?.value ?? read.code, wrote: wrote.value?.status ?? wrote.code })
  if (stay) setInterval(() => {}, 1_000)
  else await store.close()
}
