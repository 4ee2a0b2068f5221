import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'

/** When to cut a connection, seen from a message of the client that `matches`. */
export type Cut = 'before' | 'during' | 'after'

/**
 * A proxy between Annals and the server that cuts connections `before` a
 * statement reaches the server, `during` (it was delivered, but not answered)
 * or `after` (the server has answered, but the answer is dropped).
 */
export class CuttingProxy {
  readonly #server: Server
  readonly #target: { readonly host: string; readonly port: number }
  readonly #sockets = new Set<Socket>()
  #plan: ((chunk: Buffer) => Cut | undefined) | undefined
  #isRefusing = false

  private constructor(target: { host: string; port: number }) {
    this.#target = target
    this.#server = createServer(client => this.#accept(client))
  }

  static async start(connectionString: string): Promise<CuttingProxy> {
    const { hostname, port } = new URL(connectionString)
    const proxy = new CuttingProxy({ host: hostname, port: Number(port) })
    proxy.#server.listen(0, '127.0.0.1')
    await once(proxy.#server, 'listening')
    return proxy
  }

  connectionString(connectionString: string): string {
    const address = this.#server.address()
    if (address === null || typeof address === 'string') throw new Error('no port')
    const url = new URL(connectionString)
    url.hostname = '127.0.0.1'
    url.port = String(address.port)
    return url.href
  }

  /** Decides for every chunk from a client whether and when to cut the connection. */
  plan(plan: ((chunk: Buffer) => Cut | undefined) | undefined): void {
    this.#plan = plan
  }

  /** Cuts every connection now. */
  cutAll(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  /** Refuses all connections until `accept` is called. */
  refuse(): void {
    this.#isRefusing = true
    this.cutAll()
  }

  accept(): void {
    this.#isRefusing = false
  }

  async close(): Promise<void> {
    this.cutAll()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #accept(client: Socket): void {
    if (this.#isRefusing) {
      client.destroy()
      return
    }
    const server = connect(this.#target)
    let isCutAfterAnswer = false
    const cut = (): void => {
      client.destroy()
      server.destroy()
    }
    for (const socket of [client, server]) {
      socket.setNoDelay(true)
      socket.on('error', cut)
      socket.on('close', () => {
        this.#sockets.delete(socket)
        cut()
      })
      this.#sockets.add(socket)
    }
    client.on('data', chunk => {
      const when = this.#plan?.(chunk)
      if (when === 'before') return cut()
      if (when === 'after') isCutAfterAnswer = true
      server.write(chunk, () => {
        // The server has the statement, and the client is gone.
        if (when === 'during') client.destroy()
      })
    })
    server.on('data', chunk => {
      if (isCutAfterAnswer) return cut()
      client.write(chunk)
    })
  }
}
