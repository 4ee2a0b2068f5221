/** What the page asks the server for. The token, if there is one, goes with every request and nowhere else. */

const TOKEN = 'annals-token'

export function token() {
  return sessionStorage.getItem(TOKEN) ?? ''
}

export function setToken(text) {
  if (text === '') sessionStorage.removeItem(TOKEN)
  else sessionStorage.setItem(TOKEN, text)
}

/** The server said no. */
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
    // A proxy in between need not answer in JSON; the status says enough.
  }
  throw new Refused(response.status, detail)
}

export async function get(path, signal) {
  return (await ask(path, signal)).json()
}

/** Ids in paths: percent-encoded; those that would be steps on the way have a `~` in front. */
export function idInPath(id) {
  const isStep = id === '.' || id === '..' || id.startsWith('~')
  return encodeURIComponent(isStep ? `~${id}` : id)
}

/** Server-sent events by hand: `EventSource` can't send a token. Resolves when the stream ends. */
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
