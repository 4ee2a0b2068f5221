import type { Command } from 'commander'
import { timeText } from '../core/vocabulary.ts'
import { AnnalsError } from '../index.ts'
import type { Role, TokenRecord } from '../server.ts'
import {
  type Context,
  type Read,
  usageError,
  withExamples,
  withJson,
  withStore,
  wordOption,
} from './command.ts'
import { safeText } from './safe-text.ts'
import { openStoreOrServer } from './store-access.ts'
import { printTable } from './table.ts'
import type { Terminal } from './terminal.ts'

interface CreateOptions extends Read {
  readonly role: Role
  readonly name?: string
  readonly expires?: number
}

/** The methods that `TokenStore` and `TokensClient` share. */
interface Tokens {
  create(options: {
    readonly role: Role
    readonly name?: string
    readonly tenant?: string
    readonly ttlMs?: number
  }): Promise<TokenRecord & { readonly token: string }>
  list(): Promise<readonly TokenRecord[]>
  revoke(id: string): Promise<boolean>
}

export function addToken(program: Command, context: Context): void {
  const token = program.command('token').description("manage a server's access tokens")
  const create = token
    .command('create')
    .description('create a token; it is shown only once')
    .addOption(
      wordOption('--role <role>', 'what the token may do', ['reader', 'writer', 'admin']).default('reader'),
    )
    .option('--name <text>', 'what the token is for')
    .option('--expires <time>', 'lifetime, such as 30m, 12h or 90d (default: it never expires)', duration)
    .action((options: CreateOptions) => createToken(options, context))
  const list = token
    .command('list')
    .description('list the tokens that were not revoked')
    .action((options: Read) => listTokens(options, context))
  const revoke = token
    .command('revoke')
    .argument('<id>', 'id of the token, as `annals token list` shows it')
    .description('revoke a token at once; its open streams end too')
    .action((id: string, options: Read) => revokeToken(id, options, context))
  for (const command of [create, list, revoke]) withJson(withStore(command))
  withExamples(create, [
    { type: 'token create --role writer --name ci --expires 90d', for: 'for tenant default' },
    { type: 'token create --tenant acme', for: 'may read the data of tenant acme only' },
  ])
  withExamples(list, [{ type: 'token list', for: 'ids, roles, tenants' }])
  withExamples(revoke, [{ type: 'token revoke 0f3a…', for: 'the id is in `annals token list`' }])
}

async function createToken(options: CreateOptions, { terminal }: Context): Promise<void> {
  const { role, name, tenant, expires } = options
  const created = await withTokens({ ...options, make: true }, terminal, tokens =>
    tokens.create({
      role,
      tenant,
      ...(name === undefined ? {} : { name }),
      ...(expires === undefined ? {} : { ttlMs: expires }),
    }),
  )
  if (options.json === true) return terminal.json(created)
  terminal.note(
    `${role} token for tenant ${safeText(created.tenant)}, id ${safeText(created.id)}. Save it now: only its hash is stored.`,
  )
  await terminal.line(safeText(created.token))
}

async function listTokens(options: Read, { terminal }: Context): Promise<void> {
  const tokens = await withTokens({ ...options, make: false }, terminal, store => store.list())
  if (options.json === true) return terminal.json(tokens)
  if (tokens.length === 0) {
    terminal.note('no tokens; `annals token create` makes one')
    return
  }
  await printTable(terminal, tokens, [
    { title: 'ID', text: ({ id }) => id, fit: 'whole' },
    { title: 'ROLE', text: ({ role }) => role },
    { title: 'TENANT', text: ({ tenant }) => tenant },
    { title: 'NAME', text: ({ name }) => name },
    { title: 'CREATED', text: ({ createdAt }) => timeText(createdAt), fit: 'leave out' },
    { title: 'EXPIRES', text: ({ expiresAt }) => (expiresAt === undefined ? 'never' : timeText(expiresAt)) },
  ])
}

async function revokeToken(id: string, options: Read, { terminal }: Context): Promise<void> {
  const isRevoked = await withTokens({ ...options, make: false }, terminal, tokens => tokens.revoke(id))
  if (!isRevoked) {
    throw new AnnalsError(
      'NOT_FOUND',
      `there is no token ${JSON.stringify(id)}; \`annals token list\` shows the ids`,
    )
  }
  if (options.json === true) return terminal.json({ id, revoked: true })
  await terminal.line(`revoked ${safeText(id)}`)
}

/** Uses the store, or the server that has it open, which then needs a token with the role admin. */
async function withTokens<T>(
  options: Read & { readonly make: boolean },
  terminal: Terminal,
  work: (tokens: Tokens) => Promise<T>,
): Promise<T> {
  // --tenant names the tenant of the new token, not of the caller.
  const opened = await openStoreOrServer({ ...options, tenant: 'default' }, terminal, options)
  if ('client' in opened) return work(opened.client.tokens)
  try {
    const { TokenStore } = await import('../server.ts')
    return await work(new TokenStore(opened.db))
  } finally {
    await opened.db.close()
  }
}

const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 }

const LONGEST_MS = 36_500 * UNITS['d']

function duration(text: string): number {
  const [, count, unit] = /^([1-9]\d{0,5})([mhd])$/.exec(text) ?? []
  const ms = count === undefined || unit === undefined ? Number.NaN : Number(count) * UNITS[unit]
  if (ms <= LONGEST_MS) return ms
  throw usageError(
    `--expires must be a lifetime such as 30m, 12h or 90d, at most 36500d, not ${JSON.stringify(text)}`,
  )
}
