import { AnnalsError } from '../core/errors.ts'

/**
 * Ids in paths. Every id that can be stored can be asked for: percent-encoded; and as `.` and `..` would be taken
 * for steps on the way, encoded or not, those, and ids that begin with `~`, have a `~` in front.
 */

export function parameterNames(template: string): readonly string[] {
  return [...template.matchAll(/\{(\w+)\}/g)].map(match => match[1])
}

/** By name, the ids in the path of a URL that fits the template. From the URL as it came: nobody has decoded it twice. */
export function idsIn(template: string, url: string): Readonly<Record<string, string>> {
  if (!template.includes('{')) return {}
  const segments = pathOf(url).split('/')
  const ids: Record<string, string> = {}
  for (const [i, part] of template.split('/').entries()) {
    if (part.startsWith('{')) ids[part.slice(1, -1)] = idOf(segments[i] ?? '')
  }
  return ids
}

function idOf(segment: string): string {
  try {
    const id = decodeURIComponent(segment)
    return id.startsWith('~') ? id.slice(1) : id
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
