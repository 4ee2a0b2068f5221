import type { ByteString } from '../core/bytes.ts'
import { fromUtf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkOptions } from '../core/options.ts'
import { checkText } from '../core/text.ts'

/**
 * Where data live: a scope says whose they are, a tag what they are. A scope
 * is `tenant:app:agent:run` in UTF-8; `%` and `:` inside a part are escaped,
 * so that no two different namespaces share a scope.
 */

/** What a tree holds; one byte. */
export const TAGS = {
  kv: 0x01,
  event: 0x02,
  state: 0x03,
  trace: 0x04,
  run: 0x05,
  ledger: 0x06,
  machine: 0x07,
  projection: 0x08,
  telemetry: 0x09,
  vector: 0x10,
} as const

/** Set in the tag of a tree that the engine keeps for itself, beside a log. */
const ENGINE_BIT = 0x80
const HEAD_BIT = 0x40
const FEED_BIT = 0x20

/** A log takes appends only: nobody overwrites or drops what happened. */
export function isLogTag(tag: number): boolean {
  return tag === TAGS.event || tag === TAGS.ledger
}

/** The tree in which an engine remembers the dedupe keys of the log with this tag. */
export function dedupeTag(tag: number): number {
  return tag | ENGINE_BIT
}

export function isDedupeTag(tag: number): boolean {
  return (tag & ENGINE_BIT) !== 0 && isLogTag(tag & ~ENGINE_BIT)
}

/** The tree in which an engine keeps the head of the log with this tag, under `HEAD_KEY`. */
export function headTag(tag: number): number {
  return tag | ENGINE_BIT | HEAD_BIT
}

/** The log whose head the tree with this tag holds; undefined if it is no such tree. */
export function logOfHeadTag(tag: number): number | undefined {
  const log = tag & ~(ENGINE_BIT | HEAD_BIT)
  return tag === headTag(log) && isLogTag(log) ? log : undefined
}

/** The tree in which an engine lists what was appended to logs with this tag, for those that asked for it. */
export function feedTag(tag: number): number {
  return tag | ENGINE_BIT | FEED_BIT
}

export function isFeedTag(tag: number): boolean {
  const log = tag & ~(ENGINE_BIT | FEED_BIT)
  return tag === feedTag(log) && isLogTag(log)
}

export const HEAD_KEY: ByteString = 'head'

/** A tree that only the engine itself writes. */
export function isEngineTag(tag: number): boolean {
  return (tag & ENGINE_BIT) !== 0
}

export interface NamespaceParts {
  readonly tenant: string
  readonly app: string
  readonly agent: string
  readonly run: string
}

const PART_BYTES_MAX = 256
/** Four parts, of which every byte may be escaped. */
const TEXT_BYTES_MAX = 4 * 3 * PART_BYTES_MAX + 3
const SHARED = '_shared'
/** The app and agent of a run that is named by its id alone. */
export const DEFAULT_PART = 'default'

/**
 * A run's own namespace, or one that several runs share. Only the functions
 * below make one, so that having one proves that its parts were checked and
 * that `_shared` was asked for by name.
 */
export class Namespace implements NamespaceParts {
  readonly tenant: string
  readonly app: string
  readonly agent: string
  readonly run: string
  readonly #scope: ByteString

  private constructor(parts: NamespaceParts) {
    this.tenant = parts.tenant
    this.app = parts.app
    this.agent = parts.agent
    this.run = parts.run
    this.#scope = scopeOf(parts)
    Object.freeze(this)
  }

  /** @internal */
  static of(parts: NamespaceParts): Namespace {
    return new Namespace(parts)
  }

  /** @internal Undefined for what merely looks like a namespace. */
  static scopeOf(value: object): ByteString | undefined {
    return #scope in value ? value.#scope : undefined
  }

  toString(): string {
    return fromUtf8(this.#scope)
  }
}

/** A run id (in the handle's tenant, app and agent `default`), or a namespace. */
export type Scope = string | Namespace

/** Whether several runs share the namespace, so that it belongs to none of them. */
export function isShared({ run }: Pick<NamespaceParts, 'run'>): boolean {
  return run === SHARED
}

/** The namespace of one run. */
export function namespace(parts: NamespaceParts): Namespace {
  const { tenant, app, agent, run } = checkParts(parts, ['tenant', 'app', 'agent', 'run'])
  return Namespace.of({ tenant, app, agent, run })
}

/** What all runs of one agent share. */
export function agentShared(parts: Omit<NamespaceParts, 'run'>): Namespace {
  const { tenant, app, agent } = checkParts(parts, ['tenant', 'app', 'agent'])
  return Namespace.of({ tenant, app, agent, run: SHARED })
}

/** What all agents of one app share. */
export function appShared(parts: Pick<NamespaceParts, 'tenant' | 'app'>): Namespace {
  const { tenant, app } = checkParts(parts, ['tenant', 'app'])
  return Namespace.of({ tenant, app, agent: SHARED, run: SHARED })
}

/** What all apps of one tenant share. */
export function tenantShared(parts: Pick<NamespaceParts, 'tenant'>): Namespace {
  const { tenant } = checkParts(parts, ['tenant'])
  return Namespace.of({ tenant, app: SHARED, agent: SHARED, run: SHARED })
}

/** The scope that a handle bound to `tenant` means by `scope`; another tenant's is refused. */
export function resolveScope(tenant: string, scope: Scope): ByteString {
  if (typeof scope === 'string') {
    refuseShared('run', scope)
    return scopeOf({ tenant, app: DEFAULT_PART, agent: DEFAULT_PART, run: scope })
  }
  const bytes = typeof scope === 'object' && scope !== null ? Namespace.scopeOf(scope) : undefined
  if (bytes === undefined) {
    throw new AnnalsError('INVALID_ARGUMENT', 'a scope is a run id or what namespace(…) returns', {
      name: 'scope',
    })
  }
  if (scope.tenant !== tenant) {
    throw new AnnalsError('INVALID_ARGUMENT', `this handle reaches tenant ${JSON.stringify(tenant)} alone`, {
      name: 'scope',
      tenant: scope.tenant,
    })
  }
  return bytes
}

/** The bytes `tenant:app:agent:run`, escaped. Checks the parts, but leaves `_shared` to its callers. */
export function scopeOf({ tenant, app, agent, run }: NamespaceParts): ByteString {
  const head = `${escapePart('tenant', tenant)}:${escapePart('app', app)}`
  return `${head}:${escapePart('agent', agent)}:${escapePart('run', run)}`
}

/** Where the scopes of one tenant lie among all others. */
export function tenantRange(tenant: string): { readonly from: ByteString; readonly to: ByteString } {
  const part = escapePart('tenant', tenant)
  // The character behind ':'.
  return { from: `${part}:`, to: `${part};` }
}

export function parseScope(scope: ByteString): NamespaceParts {
  const parts = scope.split(':')
  if (parts.length !== 4 || /%(?!25|3A)/.test(scope)) {
    throw new AnnalsError('INVALID_ARGUMENT', 'not the bytes of a scope', { name: 'scope' })
  }
  const [tenant, app, agent, run] = parts.map(part =>
    fromUtf8(part.replaceAll('%3A', ':').replaceAll('%25', '%')),
  )
  return { tenant, app, agent, run }
}

/** The namespace that `toString` of a namespace gives. */
export function parseNamespace(text: string): Namespace {
  const { tenant, app, agent, run } = parseScope(checkText('namespace', text, { bytesMax: TEXT_BYTES_MAX }))
  if (run !== SHARED) return namespace({ tenant, app, agent, run })
  if (agent !== SHARED) return agentShared({ tenant, app, agent })
  return app === SHARED ? tenantShared({ tenant }) : appShared({ tenant, app })
}

/**
 * The flat form of a place, for engines with one key space:
 * `scope 00 tag 00 key`. A scope has no byte 0, so no two places share a key,
 * and byte order is the order by scope, then tag, then key.
 */
export function storageKey(scope: ByteString, tag: number, key: ByteString): ByteString {
  return `${scope}\0${String.fromCharCode(tag)}\0${key}`
}

export function parseStorageKey(bytes: ByteString): { scope: ByteString; tag: number; key: ByteString } {
  const end = bytes.indexOf('\0')
  if (end < 0 || bytes.length < end + 3 || bytes.charCodeAt(end + 2) !== 0) {
    throw new AnnalsError('INVALID_ARGUMENT', 'not the bytes of a storage key', { name: 'storageKey' })
  }
  return { scope: bytes.slice(0, end), tag: bytes.charCodeAt(end + 1), key: bytes.slice(end + 3) }
}

function escapePart(name: string, part: string): ByteString {
  const bytes = checkText(name, part, { bytesMax: PART_BYTES_MAX })
  if (!bytes.includes('%') && !bytes.includes(':')) return bytes
  return bytes.replaceAll('%', '%25').replaceAll(':', '%3A')
}

/** A copy, each part read once: what was checked is what is used. */
function checkParts<P extends keyof NamespaceParts>(
  parts: Pick<NamespaceParts, P>,
  names: readonly P[],
): Pick<NamespaceParts, P> {
  if (typeof parts !== 'object' || parts === null) {
    throw new AnnalsError('INVALID_ARGUMENT', `a namespace is made of ${names.join(', ')}`, { name: 'parts' })
  }
  checkOptions('a namespace', parts, names)
  const copy = {} as Record<P, string>
  for (const name of names) {
    copy[name] = parts[name]
    refuseShared(name, copy[name])
  }
  return copy
}

function refuseShared(name: string, part: string): void {
  if (part !== SHARED) return
  throw new AnnalsError('INVALID_ARGUMENT', `${name}: ${SHARED} is reserved; ask for a shared namespace`, {
    name,
    value: part,
  })
}
