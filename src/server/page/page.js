import { follow, Refused, setToken, token } from './api.js'
import { RunDetail } from './run-detail.js'
import { RunList } from './run-list.js'
import { element } from './view.js'

/**
 * One stream of all records tells what has changed: connecting → live → (lost → connecting → live)*, and paused while
 * nobody looks, as a browser has few connections for one server. After each new beginning everything is read again.
 */

const RETRY_FIRST_MS = 500
const RETRY_MAX_MS = 10_000
/** Runs that the ledger does not know are on no stream. */
const REREAD_MS = 5_000

const connection = document.getElementById('connection')
const list = new RunList({ failed, shown: () => showEmptyState() })
const detail = new RunDetail(failed)
let stream = new AbortController()
/** Which text stands where a run would. */
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
          // Only now: what happens from here on is told by the stream.
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
      // Asking again changes nothing until there is a token.
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

/** For whoever has just started the server. */
function firstSteps() {
  const { origin } = location
  const header = token() === '' ? '' : " \\\n  -H 'authorization: Bearer …'"
  const make = `curl ${origin}/v1/runs${header} \\\n  -H 'content-type: application/json' \\\n  -d '{"runId": "my-first-run"}'`
  const code = text => element('pre', { tabindex: '0' }, text)
  return element(
    'div',
    { class: 'empty' },
    element('h2', {}, 'No runs yet'),
    element(
      'p',
      {},
      'Runs appear here by themselves as soon as there are any. To see some, in another terminal:',
    ),
    code(`annals demo --server ${origin}`),
    element('p', {}, 'It starts a launch, kills it in the middle, and resumes it. Or make a run yourself:'),
    code(make),
    element(
      'p',
      {},
      'All that the server can do is on the page of its ',
      element('a', { href: '/docs' }, 'API'),
      '.',
    ),
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
