import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'

import { type Annals, open, openOn } from './annals.ts'

import { type AnnalsClient, createClient } from './client.ts'
import { openNodeDisk } from './disk/node-disk.ts'
import { openEmbedded } from './embedded/open.ts'
import { createServer, type Server } from './server.ts'
import { type OpenedLedger, type OpenLedgerOptions, testLedger } from './testing/ledger-suite.ts'

const folders: string[] = []
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'annals-client-'))
  folders.push(folder)
  return folder
}

/** The tenants that the suite uses. Each needs a token before its ledger is opened. */
const TENANTS: readonly string[] = ['acme', 'other']

async function openIn(path: string, options: OpenLedgerOptions): Promise<Annals> {
  const { clock, ...ledger } = options
  const durability = 'relaxed'
  if (clock === undefined) return open({ path, durability, ledger })
  const storage = await openEmbedded({ disk: openNodeDisk(path), clock, durability })
  return openOn(storage, { ledger })
}

/** A ledger that is reached through a server and a client. */
class Remote {
  readonly #db: Annals
  readonly #server: Server
  readonly #url: string
  readonly #tokens: ReadonlyMap<string, string>

  private constructor(db: Annals, server: Server, url: string, tokens: ReadonlyMap<string, string>) {
    this.#db = db
    this.#server = server
    this.#url = url
    this.#tokens = tokens
  }

  static async over(db: Annals): Promise<Remote> {
    const server = createServer(db, { port: 0 })
    const tokens = new Map<string, string>()
    for (const tenant of TENANTS) {
      tokens.set(tenant, (await server.tokens.create({ tenant, role: 'admin' })).token)
    }
    const { url } = await server.listen()
    return new Remote(db, server, url, tokens)
  }

  get opened(): OpenedLedger {
    const { ledger, runs, stats } = this.#client()
    return {
      ledger,
      runs,
      registry: ledger.registry,
      forTenant: tenant => this.#client(tenant).ledger,
      stats: async () => (await stats.call(this.#client())).ledger,
      close: () => this.close(),
    }
  }

  async close(): Promise<void> {
    await this.#server.close()
    await this.#db.close()
  }

  #client(tenant?: string): AnnalsClient {
    const token = tenant === undefined ? undefined : this.#tokens.get(tenant)
    return createClient({ url: this.#url, ...(token === undefined ? {} : { token }) })
  }
}

testLedger('over HTTP', async options => {
  const path = newFolder()
  let current = await Remote.over(await openIn(path, options))
  return {
    ...current.opened,
    async reopen() {
      await current.close()
      current = await Remote.over(await openIn(path, options))
      return current.opened
    },
    close: () => current.close(),
  }
})
