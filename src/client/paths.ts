import { invalidArgument } from '../core/errors.ts'
import type { NamespaceParts, Scope } from '../engine/keys.ts'

const PARTS = ['tenant', 'app', 'agent', 'run'] as const

/** An id in a path. `.` and `..` would change the path even when encoded, so they get a `~` in front. */
function segmentOf(name: string, id: unknown): string {
  if (typeof id !== 'string') throw invalidArgument(name, 'must be a string')
  if (id === '') throw invalidArgument(name, 'must not be empty')
  if (!id.isWellFormed()) throw invalidArgument(name, 'contains a lone surrogate')
  const mark = id === '.' || id === '..' || id.startsWith('~') ? '~' : ''
  return mark + encodeURIComponent(id)
}

/** The path of a run, or a path below it. */
export function runPath(run: Scope, ...rest: readonly string[]): string {
  return ['/v1/runs', scopeSegment('runId', run), ...rest].join('/')
}

/** The path of a scope without a run. */
export function scopePath(scope: Scope | NamespaceParts): string {
  return `/v1/scopes/${scopeSegment('scope', scope)}`
}

function scopeSegment(name: string, scope: Scope | NamespaceParts): string {
  return typeof scope === 'object' ? namespaceOf(name, scope) : segmentOf(name, scope)
}

/** A namespace in place of an id. No encoded id begins with `~:`. */
function namespaceOf(name: string, scope: NamespaceParts | null): string {
  const parts = PARTS.map(part => scope?.[part])
  const isNamespace = parts.every(part => typeof part === 'string' && part.isWellFormed())
  if (!isNamespace) throw invalidArgument(name, 'must be a run id or a namespace')
  return `~:${encodeURIComponent(parts.map(escaped).join(':'))}`
}

function escaped(part: string | undefined): string {
  return `${part}`.replaceAll('%', '%25').replaceAll(':', '%3A')
}

export function idPath(name: string, id: string): string {
  return segmentOf(name, id)
}
