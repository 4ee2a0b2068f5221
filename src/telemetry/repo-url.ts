const COMMIT_PATHS: Readonly<Record<string, string>> = {
  'github.com': '/commit/',
  'gitlab.com': '/-/commit/',
  'bitbucket.org': '/commits/',
}

interface Repository {
  readonly host: string
  /** Owner and name; at GitLab groups may be in between. */
  readonly path: string
}

/**
 * TD2: the web page of a repository; undefined for unknown hosts and invalid addresses. The stored text can be anything, so
 * the URL is built from host and path only.
 */
export function repoUrl(gitRepo: string | undefined): string | undefined {
  const repository = gitRepo === undefined ? undefined : repositoryOf(gitRepo)
  return repository === undefined ? undefined : `https://${repository.host}/${repository.path}`
}

const HASH = /^[0-9a-f]{7,40}$/i

/** TD2: the web page of a commit. */
export function commitUrl(gitRepo: string | undefined, hash: string | undefined): string | undefined {
  const repository = gitRepo === undefined ? undefined : repositoryOf(gitRepo)
  if (repository === undefined || hash === undefined || !HASH.test(hash)) return undefined
  const { host, path } = repository
  return `https://${host}/${path}${COMMIT_PATHS[host]}${hash}`
}

/** `scheme://[user[:password]@]host[:port]/path`, `[user[:password]@]host:path`, or `host/path`; a password may have an @. */
const WITH_SCHEME = /^(?:https?|ssh|git|git\+ssh|git\+https):\/\/(?:[^/]*@)?([^/:@]+)(?::\d+)?\/(.+)$/i
const LIKE_SCP = /^(?:(?![a-z+]+:\/\/)[^/]*@)?([^/:@]+):(?!\/\/)\/?(.+)$/i
const BARE = /^([^/:@]+)\/(.+)$/

const SEGMENT = /^[\w.~+-]+$/
const SEGMENTS_MAX = 20

function repositoryOf(gitRepo: string): Repository | undefined {
  const text = gitRepo.trim()
  const match = WITH_SCHEME.exec(text) ?? LIKE_SCP.exec(text) ?? BARE.exec(text)
  if (match === null) return undefined
  const host = match[1].toLowerCase()
  if (!Object.hasOwn(COMMIT_PATHS, host)) return undefined
  const path = match[2]
    .replace(/[?#].*$/s, '')
    .replace(/\/+$/, '')
    .replace(/\.git$/i, '')
  const segments = path.split('/')
  const segmentsMax = host === 'gitlab.com' ? SEGMENTS_MAX : 2
  if (segments.length < 2 || segments.length > segmentsMax) return undefined
  if (!segments.every(segment => SEGMENT.test(segment) && !/^\.+$/.test(segment))) return undefined
  return { host, path }
}
