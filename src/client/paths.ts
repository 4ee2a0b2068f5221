import { AnnalsError } from '../core/errors.ts'
import type { Namespace, Scope } from '../engine/keys.ts'

/** An id in a path: `.` and `..` would be taken for steps on the way, encoded or not. */
function segmentOf(name: string, id: unknown): string {
  if (typeof id !== 'string') throw invalid(name, 'must be a string')
  if (id === '') throw invalid(name, 'must not be empty')
  if (!id.isWellFormed()) throw invalid(name, 'contains a lone surrogate')
  const mark = id === '.' || id === '..' || id.startsWith('~') ? '~' : ''
  return mark + encodeURIComponent(id)
}

/** The path of a run, or of what is below it. */
export function runPath(run: Scope, ...rest: readonly string[]): string {
  return ['/v1/runs', typeof run === 'object' ? namespaceOf(run) : segmentOf('runId', run), ...rest].join('/')
}

/** A namespace in place of an id: no id begins like this. */
function namespaceOf(run: Namespace | null): string {
  if (run === null) throw invalid('runId', 'must be a run id or a namespace')
  return `~:${encodeURIComponent(run.toString())}`
}

export function idPath(name: string, id: string): string {
  return segmentOf(name, id)
}

function invalid(name: string, why: string): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', `${name} ${why}`, { name })
}
