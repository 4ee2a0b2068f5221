/**
 * Runs the programs that its parent names, one after the other, each as if in a process of its own. A program has ended when
 * nothing keeps the process alive any more. Most of the time of a short program is the start of its process and the import of
 * its modules, which happen only once here.
 */
import { Readable, Writable } from 'node:stream'
import { pathToFileURL } from 'node:url'

/** The exit code of Node for a program that waits for a promise that nothing can settle. */
const UNSETTLED_EXIT = 13
let runs = 0

/** Collects what a program writes to stdout or stderr. */
class Output extends Writable {
  #chunks = []

  _write(chunk, _encoding, done) {
    this.#chunks.push(Buffer.from(chunk))
    done()
  }

  toString() {
    return Buffer.concat(this.#chunks).toString('utf8')
  }
}

process.on('message', ({ program, args, cwd, env, input }) => {
  const streams = { stdout: new Output(), stderr: new Output(), stdin: inputOf(input) }
  for (const [name, value] of Object.entries(streams)) {
    Object.defineProperty(process, name, { value, configurable: true })
  }
  process.chdir(cwd)
  for (const name of Object.keys(process.env)) if (!(name in env)) delete process.env[name]
  Object.assign(process.env, env)
  process.argv = [process.execPath, program, ...args]
  process.exitCode = undefined
  let isSettled = false
  // With another query it is another module, and runs again. The modules that it imports are loaded only once.
  void import(`${pathToFileURL(program).href}?run=${runs++}`).then(() => {
    isSettled = true
  })
  // Until the program has ended, the channel must not keep the process alive.
  process.channel.unref()
  process.once('beforeExit', code => {
    process.channel.ref()
    const { stdout, stderr } = streams
    process.send({ code: isSettled ? code : UNSETTLED_EXIT, stdout: `${stdout}`, stderr: `${stderr}` })
  })
})

function inputOf(input) {
  const bytes = Buffer.from(input)
  return Readable.from(bytes.length === 0 ? [] : [bytes], { objectMode: false })
}
