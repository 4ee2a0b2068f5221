import { AnnalsError } from '../core/errors.ts'

/** An id in a path: `.` and `..` would be taken for steps on the way, encoded or not. */
function segmentOf(name: string, id: unknown): string {
  if (typeof id !== 'string') throw invalid(name, 'must be a string')
  if (id === '') throw invalid(name, 'must not be empty')
  if (!id.isWellFormed()) throw invalid(name, 'contains a lone surrogate')
  const mark = id === '.' || id === '..' || id.startsWith('~') ? '~' : ''
  return mark + encodeURIComponent(id)
}

/** The path of a run, or of what is below it. */
export function runPath(runId: string, ...rest: readonly string[]): string {
  return ['/v1/runs', segmentOf('runId', runId), ...rest].join('/')
}

export function idPath(name: string, id: string): string {
  return segmentOf(name, id)
}

function invalid(name: string, why: string): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', `${name} ${why}`, { name })
}
