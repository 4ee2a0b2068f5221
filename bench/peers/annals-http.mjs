import { fork } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { fileURLToPath } from 'node:url'
import { ledgerStore } from './annals-ledger.mjs'

const SERVER = fileURLToPath(new URL('http-server.mjs', import.meta.url))

/**
 * The ledger of a server in another process. This process makes the events and sends each over one of `inFlight` open
 * connections. It writes HTTP by hand, so that the server is measured and not a client library.
 */
export async function openStore(folder, { durability, inFlight }) {
  const server = fork(SERVER, [folder, durability])
  const [{ port }] = await once(server, 'message')
  const idle = await Promise.all(Array.from({ length: inFlight }, () => Connection.to(port)))
  const ask = async (path, body) => {
    const connection = idle.pop()
    try {
      return await connection.post(path, JSON.stringify(body))
    } finally {
      idle.push(connection)
    }
  }
  const ledger = {
    appendEvent: event => ask('/v1/events', event),
    appendEvents: async events => (await ask('/v1/events/batch', events)).results,
  }
  return {
    ...ledgerStore({ ledger }),
    async settle() {
      server.send({ settle: true })
      await once(server, 'message')
    },
    async close() {
      server.kill('SIGKILL')
      await once(server, 'exit')
    },
  }
}

const HEAD_END = '\r\n\r\n'

/** An HTTP connection that sends one request at a time. */
class Connection {
  static async to(port) {
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    return new Connection(socket)
  }

  constructor(socket) {
    this.socket = socket
    this.text = ''
    socket.setNoDelay(true)
    socket.setEncoding('utf8')
    socket.on('data', piece => this.#read(piece))
    socket.on('close', () => this.reject?.(new Error('the server closed a connection')))
    socket.on('error', error => this.reject?.(error))
  }

  post(path, body) {
    return new Promise((resolve, reject) => {
      this.resolve = resolve
      this.reject = reject
      this.socket.write(
        `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
      )
    })
  }

  #read(piece) {
    this.text += piece
    const head = this.text.indexOf(HEAD_END)
    if (head < 0) return
    const length = Number(/^content-length: (\d+)/im.exec(this.text.slice(0, head))?.[1])
    // These responses are ASCII, so the number of characters is the number of bytes.
    const body = this.text.slice(head + HEAD_END.length)
    if (body.length < length) return
    const isGood = this.text.startsWith('HTTP/1.1 200')
    this.text = ''
    if (isGood) this.resolve(JSON.parse(body))
    else this.reject(new Error(body))
  }
}
