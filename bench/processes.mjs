import { fork } from 'node:child_process'
import { closeSync, fsyncSync, mkdtempSync, openSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const JOB = fileURLToPath(new URL('job.mjs', import.meta.url))
const folders = new Set()
const children = new Set()

function removeEverything() {
  for (const child of children) child.kill('SIGKILL')
  for (const folder of folders) rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
}

process.on('exit', removeEverything)
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1))

/** Passes a new folder to `work` and removes it afterwards, also after an error. */
export async function withFolder(work) {
  const folder = mkdtempSync(join(tmpdir(), 'annals-bench-'))
  folders.add(folder)
  try {
    return await work(folder)
  } finally {
    rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
    folders.delete(folder)
  }
}

/**
 * Syncs every file in the folder. Must not run in a process that has a store open there: closing a file would drop the locks
 * that the store holds on it.
 */
export function syncFolder(folder) {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    try {
      const file = openSync(join(entry.parentPath, entry.name), 'r')
      fsyncSync(file)
      closeSync(file)
    } catch (error) {
      if (error.code !== 'ENOENT') throw error // a background compaction removed it meanwhile
    }
  }
}

/** Starts `job.mjs` with the flags of this process and `execArgv`. `done` resolves with the function's result. */
export function startJob(module, name, argument, { execArgv = [] } = {}) {
  const child = fork(JOB, [module, name, JSON.stringify(argument)], {
    execArgv: [...process.execArgv, ...execArgv],
  })
  children.add(child)
  const done = new Promise((resolve, reject) => {
    child.on('message', message => {
      if (message.error !== undefined) reject(new Error(`${module} ${name}: ${message.error}`))
      else if ('result' in message) resolve(message.result)
    })
    child.on('exit', (code, signal) => {
      children.delete(child)
      reject(new Error(`${module} ${name} ended with ${signal ?? code}`))
    })
  })
  done.catch(() => {})
  return { child, done }
}

/** Returns the property of the child's next message that has it. */
export function nextMessage({ child, done }, property) {
  return new Promise((resolve, reject) => {
    const listen = message => {
      if (message[property] === undefined) return
      child.off('message', listen)
      resolve(message[property])
    }
    child.on('message', listen)
    done.catch(reject)
  })
}

export function runJob(module, name, argument, options) {
  return startJob(module, name, argument, options).done
}

export function killed({ child }) {
  return new Promise(resolve => {
    child.on('exit', resolve)
    child.kill('SIGKILL')
  })
}
