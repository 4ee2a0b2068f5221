import type { Command } from 'commander'
import { AnnalsError } from '../index.ts'
import type { Role, TokenRecord } from '../server.ts'
import { type Context, type Read, withExamples, withJson, withStore, wordOption } from './command.ts'
import { safeText } from './safe-text.ts'
import { openStoreOrServer } from './store.ts'
import { printTable } from './table.ts'
import type { Terminal } from './terminal.ts'
import { timeText } from './words.ts'

interface CreateOptions extends Read {
  readonly role: Role
  readonly name?: string
  readonly expires?: number
}

/** What a server's client and a store have alike. */
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
  const token = program.command('token').description('manage the tokens of a server')
  const create = token
    .command('create')
    .description('make a token; it is shown once, and never again')
    .addOption(wordOption('--role <role>', 'what it may do', ['reader', 'writer', 'admin']).default('reader'))
    .option('--name <text>', 'what it is for')
    .option('--expires <time>', 'after 30m, 12h, 90d; never without it', duration)
    .action((options: CreateOptions) => createToken(options, context))
  const list = token
    .command('list')
    .description('those that were not revoked')
    .action((options: Read) => listTokens(options, context))
  const revoke = token
    .command('revoke')
    .argument('<id>', 'as `annals token list` shows it')
    .description('make a token useless at once, open streams included')
    .action((id: string, options: Read) => revokeToken(id, options, context))
  for (const command of [create, list, revoke]) withJson(withStore(command))
  withExamples(create, [
    { type: 'token create --role writer --name ci --expires 90d', for: 'of tenant default' },
    { type: 'token create --tenant acme', for: 'that reads what acme has, and nothing else' },
  ])
  withExamples(list, [{ type: 'token list', for: 'ids, roles, tenants' }])
  withExamples(revoke, [{ type: 'token revoke 0f3a…', for: 'with the id that `token list` shows' }])
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
    `${role} of tenant ${safeText(created.tenant)}, id ${safeText(created.id)}. It is not stored: keep it now.`,
  )
  await terminal.line(safeText(created.token))
}

async function listTokens(options: Read, { terminal }: Context): Promise<void> {
  const tokens = await withTokens({ ...options, make: false }, terminal, store => store.list())
  if (options.json === true) return terminal.json(tokens)
  if (tokens.length === 0) {
    terminal.note('no tokens: `annals token create` makes one')
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
      `there is no token with the id ${JSON.stringify(id)}: \`annals token list\` shows them`,
    )
  }
  if (options.json === true) return terminal.json({ id, revoked: true })
  await terminal.line(`revoked ${safeText(id)}`)
}

/** Of the store itself; or of the server that has it open, which then wants the token of an admin. */
async function withTokens<T>(
  options: Read & { readonly make: boolean },
  terminal: Terminal,
  work: (tokens: Tokens) => Promise<T>,
): Promise<T> {
  // The tenant is that of the new token, not of whoever asks for it.
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
  throw new AnnalsError(
    'INVALID_ARGUMENT',
    `--expires must be such as 30m, 12h or 90d, of a hundred years at most, not ${JSON.stringify(text)}`,
  )
}
