import type { ByteString } from '../core/bytes.ts'
import { fromUtf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkOptions } from '../core/options.ts'
import { checkText } from '../core/text.ts'

/**
 * The addresses of stored data. A scope names the owner of the data, a tag their
 * kind. A scope is `tenant:app:agent:run` in UTF-8. `%` and `:` inside a part
 * are escaped, so two different namespaces never share a scope.
 */

/** The kinds of data that a tree can hold. A tag is one byte. */
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

/** The bit that marks the tag of a tree that only the engine writes, beside a log. */
const ENGINE_BIT = 0x80
const HEAD_BIT = 0x40
const FEED_BIT = 0x20

/** Whether trees with this tag are logs, which accept only appends. */
export function isLogTag(tag: number): boolean {
  return tag === TAGS.event || tag === TAGS.ledger
}

/** The tag of the tree in which an engine stores the dedupe keys of the log with this tag. */
export function dedupeTag(tag: number): number {
  return tag | ENGINE_BIT
}

/** Whether a tree with this tag holds the dedupe keys of a log. */
export function isDedupeTag(tag: number): boolean {
  return logOfDedupeTag(tag) !== undefined
}

/** The tag of the log whose dedupe keys a tree with this tag holds; undefined if it holds something else. */
export function logOfDedupeTag(tag: number): number | undefined {
  const log = tag & ~ENGINE_BIT
  return log !== tag && isLogTag(log) ? log : undefined
}

/** The tag of the tree in which an engine stores the head of the log with this tag, under `HEAD_KEY`. */
export function headTag(tag: number): number {
  return tag | ENGINE_BIT | HEAD_BIT
}

/** The inverse of `headTag`: the tag of the log whose head a tree with this tag holds; undefined for other tags. */
export function logOfHeadTag(tag: number): number | undefined {
  const log = tag & ~(ENGINE_BIT | HEAD_BIT)
  return tag === headTag(log) && isLogTag(log) ? log : undefined
}

/** The tag of the tree in which an engine lists the appends to logs with this tag, if they name a feed. */
export function feedTag(tag: number): number {
  return tag | ENGINE_BIT | FEED_BIT
}

/** Whether a tree with this tag is a feed. */
export function isFeedTag(tag: number): boolean {
  const log = tag & ~(ENGINE_BIT | FEED_BIT)
  return tag === feedTag(log) && isLogTag(log)
}

/** The key under which an engine stores the head of a log. */
export const HEAD_KEY: ByteString = 'head'

/** Whether only the engine itself writes trees with this tag. */
export function isEngineTag(tag: number): boolean {
  return (tag & ENGINE_BIT) !== 0
}

/** The four parts of a namespace, each 1 to 256 bytes in UTF-8. */
export interface NamespaceParts {
  /** The tenant. A handle reaches the data of one tenant only. */
  readonly tenant: string
  /** The application. */
  readonly app: string
  /** The agent within the application. */
  readonly agent: string
  /** The run of the agent. */
  readonly run: string
}

const PART_BYTES_MAX = 256
/** Four parts with every byte escaped, and three colons. */
const TEXT_BYTES_MAX = 4 * 3 * PART_BYTES_MAX + 3
const SHARED = '_shared'
/** The app and agent of a run that is addressed by its id alone. */
export const DEFAULT_PART = 'default'

/**
 * The namespace of one run, or one that several runs share. Only the functions
 * `namespace`, `agentShared`, `appShared`, `tenantShared` and `parseNamespace`
 * create one, so its parts are always valid.
 */
export class Namespace implements NamespaceParts {
  /** The tenant. */
  readonly tenant: string
  /** The application; `_shared` if all apps of the tenant share the namespace. */
  readonly app: string
  /** The agent; `_shared` if all agents of the app share the namespace. */
  readonly agent: string
  /** The run id; `_shared` if several runs share the namespace. */
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

  /** @internal Creates a namespace from parts that were checked. */
  static of(parts: NamespaceParts): Namespace {
    return new Namespace(parts)
  }

  /** @internal The namespace's scope; undefined for an object that only looks like a namespace. */
  static scopeOf(value: object): ByteString | undefined {
    return #scope in value ? value.#scope : undefined
  }

  /** The namespace as text, `tenant:app:agent:run`, with `%` and `:` escaped. `parseNamespace` is the inverse. */
  toString(): string {
    return fromUtf8(this.#scope)
  }
}

/** Where data belong: a namespace, or a run id, which means that run of app `default` and agent `default`. */
export type Scope = string | Namespace

/** Whether several runs share the namespace. */
export function isShared({ run }: Pick<NamespaceParts, 'run'>): boolean {
  return run === SHARED
}

/** The namespace of one run. */
export function namespace(parts: NamespaceParts): Namespace {
  const { tenant, app, agent, run } = checkParts(parts, ['tenant', 'app', 'agent', 'run'])
  return Namespace.of({ tenant, app, agent, run })
}

/** The namespace that all runs of one agent share. */
export function agentShared(parts: Omit<NamespaceParts, 'run'>): Namespace {
  const { tenant, app, agent } = checkParts(parts, ['tenant', 'app', 'agent'])
  return Namespace.of({ tenant, app, agent, run: SHARED })
}

/** The namespace that all agents of one app share. */
export function appShared(parts: Pick<NamespaceParts, 'tenant' | 'app'>): Namespace {
  const { tenant, app } = checkParts(parts, ['tenant', 'app'])
  return Namespace.of({ tenant, app, agent: SHARED, run: SHARED })
}

/** The namespace that all apps of one tenant share. */
export function tenantShared(parts: Pick<NamespaceParts, 'tenant'>): Namespace {
  const { tenant } = checkParts(parts, ['tenant'])
  return Namespace.of({ tenant, app: SHARED, agent: SHARED, run: SHARED })
}

/** The bytes of `scope` for a handle of `tenant`. Refuses a namespace of another tenant. */
export function resolveScope(tenant: string, scope: Scope): ByteString {
  if (typeof scope === 'string') {
    refuseShared('run', scope)
    return scopeOf({ tenant, app: DEFAULT_PART, agent: DEFAULT_PART, run: scope })
  }
  const bytes = typeof scope === 'object' && scope !== null ? Namespace.scopeOf(scope) : undefined
  if (bytes === undefined) {
    throw new AnnalsError('INVALID_ARGUMENT', 'a scope must be a run id or a namespace from namespace(…)', {
      name: 'scope',
    })
  }
  if (scope.tenant !== tenant) {
    throw new AnnalsError('INVALID_ARGUMENT', `this handle reaches only tenant ${JSON.stringify(tenant)}`, {
      name: 'scope',
      tenant: scope.tenant,
    })
  }
  return bytes
}

/** The bytes `tenant:app:agent:run`, escaped. Refuses invalid parts, but allows `_shared`, which callers must check. */
export function scopeOf({ tenant, app, agent, run }: NamespaceParts): ByteString {
  const head = `${escapePart('tenant', tenant)}:${escapePart('app', app)}`
  return `${head}:${escapePart('agent', agent)}:${escapePart('run', run)}`
}

/** The range of all scopes of one tenant. */
export function tenantRange(tenant: string): { readonly from: ByteString; readonly to: ByteString } {
  const part = escapePart('tenant', tenant)
  // ';' is the character after ':'.
  return { from: `${part}:`, to: `${part};` }
}

/** The parts of a scope, unescaped. The inverse of `scopeOf`. */
export function parseScope(scope: ByteString): NamespaceParts {
  const parts = scope.split(':')
  if (parts.length !== 4 || /%(?!25|3A)/.test(scope)) {
    throw new AnnalsError('INVALID_ARGUMENT', 'the bytes are not a scope', { name: 'scope' })
  }
  const [tenant, app, agent, run] = parts.map(part =>
    fromUtf8(part.replaceAll('%3A', ':').replaceAll('%25', '%')),
  )
  return { tenant, app, agent, run }
}

/** Parses the text of a namespace. The inverse of `Namespace.toString`. */
export function parseNamespace(text: string): Namespace {
  const { tenant, app, agent, run } = parseScope(checkText('namespace', text, { bytesMax: TEXT_BYTES_MAX }))
  if (run !== SHARED) return namespace({ tenant, app, agent, run })
  if (agent !== SHARED) return agentShared({ tenant, app, agent })
  return app === SHARED ? tenantShared({ tenant }) : appShared({ tenant, app })
}

/**
 * The flat key of a place, for engines with one key space:
 * `scope 00 tag 00 key`. A scope has no byte 0, so two places never share a
 * key, and flat keys sort by scope, then tag, then key.
 */
export function storageKey(scope: ByteString, tag: number, key: ByteString): ByteString {
  return `${scope}\0${String.fromCharCode(tag)}\0${key}`
}

/** The place of a flat key. The inverse of `storageKey`. */
export function parseStorageKey(bytes: ByteString): { scope: ByteString; tag: number; key: ByteString } {
  const end = bytes.indexOf('\0')
  if (end < 0 || bytes.length < end + 3 || bytes.charCodeAt(end + 2) !== 0) {
    throw new AnnalsError('INVALID_ARGUMENT', 'the bytes are not a storage key', { name: 'storageKey' })
  }
  return { scope: bytes.slice(0, end), tag: bytes.charCodeAt(end + 1), key: bytes.slice(end + 3) }
}

function escapePart(name: string, part: string): ByteString {
  const bytes = checkText(name, part, { bytesMax: PART_BYTES_MAX })
  if (!bytes.includes('%') && !bytes.includes(':')) return bytes
  return bytes.replaceAll('%', '%25').replaceAll(':', '%3A')
}

/** Checks the parts and copies them. It reads each part once, so a getter cannot change a value after its check. */
function checkParts<P extends keyof NamespaceParts>(
  parts: Pick<NamespaceParts, P>,
  names: readonly P[],
): Pick<NamespaceParts, P> {
  if (typeof parts !== 'object' || parts === null) {
    throw new AnnalsError('INVALID_ARGUMENT', `a namespace needs an object with ${names.join(', ')}`, {
      name: 'parts',
    })
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
  throw new AnnalsError(
    'INVALID_ARGUMENT',
    `${name} must not be ${SHARED}: use agentShared, appShared or tenantShared`,
    {
      name,
      value: part,
    },
  )
}
