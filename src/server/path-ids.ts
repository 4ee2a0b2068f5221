import { AnnalsError } from '../core/errors.ts'
import { parseNamespace, type Scope } from '../engine/keys.ts'

/**
 * Ids in paths are percent-encoded. `.` and `..` would change the path even when encoded, so they and ids that begin with `~`
 * get a `~` in front.
 *
 * A namespace may stand in place of a run's id: `~:tenant:app:agent:run`, with `%` and `:` inside a part written as `%25` and
 * `%3A`, and then percent-encoded like any id.
 */

export function parameterNames(template: string): readonly string[] {
  return [...template.matchAll(/\{(\w+)\}/g)].map(match => match[1])
}

/** The ids in a path. */
export interface PathNames {
  readonly ids: Readonly<Record<string, string>>
  /** The run or scope of the path; empty if the path has none. */
  readonly run: Scope
}

/** An encoded id cannot begin like this, because an id that begins with `~` gets a second one. */
const NAMESPACE = '~:'
const SCOPE_PATHS: readonly string[] = ['/v1/runs/{runId}', '/v1/scopes/{runId}']
const NOTHING: PathNames = { ids: {}, run: '' }

/** Reads the ids from the raw URL, so that none is decoded twice. */
export function namesIn(template: string, url: string): PathNames {
  if (!template.includes('{')) return NOTHING
  const segments = pathOf(url).split('/')
  const ids: Record<string, string> = {}
  const isOfScope = SCOPE_PATHS.some(path => template.startsWith(path))
  let run: Scope = ''
  for (const [i, part] of template.split('/').entries()) {
    if (!part.startsWith('{')) continue
    const segment = decoded(segments[i] ?? '')
    if (part === '{runId}' && isOfScope) run = runIn(segment)
    else ids[part.slice(1, -1)] = idOf(segment)
  }
  return { ids, run }
}

function runIn(segment: string): Scope {
  return segment.startsWith(NAMESPACE) ? parseNamespace(segment.slice(NAMESPACE.length)) : idOf(segment)
}

export function runIdOf(run: Scope): string {
  return typeof run === 'string' ? run : run.run
}

function idOf(segment: string): string {
  return segment.startsWith('~') ? segment.slice(1) : segment
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch (error) {
    if (!(error instanceof URIError)) throw error
    throw new AnnalsError('INVALID_ARGUMENT', 'the path is not percent-encoded UTF-8', { name: 'path' })
  }
}

function pathOf(url: string): string {
  const start = url.indexOf('/', url.indexOf('://') + 3)
  const end = url.search(/[?#]/)
  return url.slice(start, end < 0 ? url.length : end)
}
