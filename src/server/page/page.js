import { follow, Refused, setToken, token } from './api.js'
import { RunDetail } from './run-detail.js'
import { RunList } from './run-list.js'
import { element } from './view.js'

/**
 * One stream of all events drives the page: connecting → live → (lost → connecting → live)*. It is paused while the tab is
 * hidden, because a browser has few connections per server. After each new connection everything is read again.
 */

const RETRY_FIRST_MS = 500
const RETRY_MAX_MS = 10_000
/** Runs that are not in the ledger send no events, so they are read again regularly. */
const REREAD_MS = 5_000

const connection = document.getElementById('connection')
const list = new RunList({ failed, shown: () => showEmptyState() })
const detail = new RunDetail(failed)
let stream = new AbortController()
/** Which text is shown in place of a run. */
let shownEmpty

function say(state, text) {
  connection.dataset.state = state
  connection.textContent = text
}

function failed(error) {
  if (error.name === 'AbortError') return
  if (error instanceof Refused && error.status === 401) askForToken(error.message)
  else say('lost', error instanceof Refused ? error.message : 'the server does not answer')
}

async function reread() {
  await Promise.all([list.load(), detail.load()])
}

async function live() {
  stream.abort()
  stream = new AbortController()
  const { signal } = stream
  let wait = RETRY_FIRST_MS
  while (!signal.aborted) {
    try {
      await follow('/v1/stream?tail=true', {
        signal,
        opened() {
          wait = RETRY_FIRST_MS
          say('live', 'live')
          // After the stream is open, so that no change is missed.
          reread().catch(failed)
        },
        received(record) {
          list.touch(record.runId)
          detail.receive(record)
        },
      })
      say('lost', 'connection lost')
    } catch (error) {
      if (signal.aborted) return
      failed(error)
      // Retrying is useless until the user enters a token.
      if (error instanceof Refused && error.status === 401) return
    }
    await new Promise(resolve => setTimeout(resolve, wait))
    wait = Math.min(RETRY_MAX_MS, wait * 2)
    if (!signal.aborted) say('connecting', 'connecting')
  }
}

function chosen() {
  const [, encoded] = /^#\/runs\/(.+)$/.exec(location.hash) ?? []
  if (encoded === undefined) return undefined
  try {
    return decodeURIComponent(encoded)
  } catch (error) {
    if (error instanceof URIError) return encoded
    throw error
  }
}

function show() {
  const runId = chosen()
  list.select(runId ?? '')
  document.title = runId === undefined ? 'Annals' : `${runId} · Annals`
  if (runId === undefined) showEmptyState()
  else detail.show(runId).catch(failed)
}

function showEmptyState() {
  if (chosen() !== undefined) {
    shownEmpty = undefined
    return
  }
  const kind = list.isEmpty ? 'none' : 'choose'
  if (kind === shownEmpty) return
  shownEmpty = kind
  detail.clear(
    kind === 'none' ? firstSteps() : element('p', { class: 'empty' }, 'Choose a run to see its events.'),
  )
}

/** The text for an empty store. */
function firstSteps() {
  const { origin } = location
  const header = token() === '' ? '' : " \\\n  -H 'authorization: Bearer …'"
  const make = `curl ${origin}/v1/runs${header} \\\n  -H 'content-type: application/json' \\\n  -d '{"runId": "my-first-run"}'`
  const code = text => element('pre', { tabindex: '0' }, text)
  return element(
    'div',
    { class: 'empty' },
    element('h2', {}, 'No runs yet'),
    element('p', {}, 'New runs appear here at once. To see one, run this in another terminal:'),
    code(`annals demo --server ${origin}`),
    element('p', {}, 'It starts a launch, kills its process and resumes it. Or create a run yourself:'),
    code(make),
    element('p', {}, 'All requests are on the ', element('a', { href: '/docs' }, 'API page'), '.'),
  )
}

const dialog = document.getElementById('token-dialog')
const input = document.getElementById('token-input')

function askForToken(why) {
  say('lost', 'needs a token')
  const text = token() === '' ? 'This server needs a token.' : `The server refused the token: ${why}.`
  document.getElementById('token-why').textContent = text
  if (!dialog.open) dialog.showModal()
}

document.getElementById('token-open').addEventListener('click', () => dialog.showModal())
document.getElementById('token-form').addEventListener('submit', event => {
  const { value: choice } = event.submitter ?? { value: 'use' }
  if (choice === 'cancel') return
  setToken(choice === 'forget' ? '' : input.value.trim())
  input.value = ''
  live().catch(failed)
})
document.getElementById('skip').addEventListener('click', event => {
  event.preventDefault()
  document.getElementById('detail').focus()
})
addEventListener('hashchange', show)
document.addEventListener('visibilitychange', () => {
  if (document.hidden) {
    stream.abort()
    say('connecting', 'paused')
  } else live().catch(failed)
})
setInterval(() => {
  if (document.hidden || connection.dataset.state !== 'live') return
  Promise.all([list.load(), detail.loadUnfollowed()]).catch(failed)
}, REREAD_MS)

show()
live().catch(failed)
