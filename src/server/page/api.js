/** Requests of the page. The token is sent with every request to this server and to no other. */

const TOKEN = 'annals-token'

export function token() {
  return sessionStorage.getItem(TOKEN) ?? ''
}

export function setToken(text) {
  if (text === '') sessionStorage.removeItem(TOKEN)
  else sessionStorage.setItem(TOKEN, text)
}

/** The server refused a request. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail)
    this.status = status
  }
}

async function ask(path, signal) {
  const headers = token() === '' ? {} : { authorization: `Bearer ${token()}` }
  const response = await fetch(path, { headers, signal, cache: 'no-store' })
  if (response.ok) return response
  let detail = `HTTP ${response.status}`
  try {
    detail = (await response.json()).detail ?? detail
  } catch {
    // A proxy may not answer in JSON; then the status is the message.
  }
  throw new Refused(response.status, detail)
}

export async function get(path, signal) {
  return (await ask(path, signal)).json()
}

/** An id in a path, percent-encoded. `.` and `..` would change the path, so they get a `~` in front. */
export function idInPath(id) {
  const isStep = id === '.' || id === '..' || id.startsWith('~')
  return encodeURIComponent(isStep ? `~${id}` : id)
}

/** Reads server-sent events with `fetch`, because `EventSource` cannot send a token. Resolves when the stream ends. */
export async function follow(path, { signal, opened, received }) {
  const response = await ask(path, signal)
  opened()
  const decoder = new TextDecoder()
  const reader = response.body.getReader()
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    rest += decoder.decode(value, { stream: true })
    for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
      const { event, data } = fieldsOf(rest.slice(0, end))
      rest = rest.slice(end + 2)
      if (data === undefined) continue
      if (event === 'problem') throw problemOf(data)
      received(JSON.parse(data))
    }
  }
}

function fieldsOf(block) {
  const fields = {}
  for (const line of block.split('\n')) {
    const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? []
    if (name !== undefined) fields[name] = value
  }
  return fields
}

function problemOf(data) {
  const { status, detail } = JSON.parse(data)
  return new Refused(status, detail)
}
