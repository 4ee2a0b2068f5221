import { get, idInPath, Refused } from './api.js'
import { arrange, element, moment, pill, words } from './view.js'
import { STATUS_WORDS } from './vocabulary.js'

const PAGE = 50
/** The largest page that the server sends. */
const ASKED_MAX = 1_000
const SOON_MS = 150
/** The run index is updated a moment after the events. */
const LATER_MS = 1_200
/** With more changed runs than this, the whole list is read again. */
const RENEWED_MAX = 10

/** The runs, newest first. The list is read once; then each run is updated when events of it arrive. */
export class RunList {
  #list = document.getElementById('runs')
  #more = document.getElementById('more')
  #filter = document.getElementById('filter')
  #none = document.getElementById('none')
  #count = document.getElementById('count')
  #runs = []
  #limit = PAGE
  #next
  #changed = new Set()
  #timers = []
  #failed
  #shown
  #current = ''

  constructor({ failed, shown }) {
    this.#failed = failed
    this.#shown = shown
    for (const { run, word } of STATUS_WORDS) {
      if (run !== undefined && run !== 'Archived')
        this.#filter.append(element('option', { value: run }, word))
    }
    this.#more.addEventListener('click', () => {
      this.#limit += PAGE
      this.load().catch(failed)
    })
    this.#filter.addEventListener('change', () => {
      this.#limit = PAGE
      this.load().catch(failed)
    })
    this.#list.addEventListener('keydown', event => this.#walk(event))
  }

  get isEmpty() {
    return this.#runs.length === 0 && this.#filter.value === ''
  }

  async load() {
    const status = this.#filter.value
    const runs = []
    let next
    do {
      const limit = Math.min(ASKED_MAX, this.#limit - runs.length)
      const query = new URLSearchParams({ limit: String(limit) })
      if (status !== '') query.set('status', status)
      if (next !== undefined) query.set('after', next)
      const page = await get(`/v1/runs?${query}`)
      runs.push(...page.runs)
      next = page.next
    } while (next !== undefined && runs.length < this.#limit)
    // The user has chosen another status meanwhile.
    if (status !== this.#filter.value) return
    this.#runs = runs
    this.#next = next
    this.#show()
  }

  /** Schedules an update of this run. */
  touch(runId) {
    this.#changed.add(runId)
    if (this.#timers.length > 0) return
    this.#timers = [SOON_MS, LATER_MS].map(ms => setTimeout(() => this.#renew(ms === LATER_MS), ms))
  }

  select(runId) {
    this.#current = runId
    this.#show()
  }

  async #renew(isLast) {
    const ids = [...this.#changed]
    if (isLast) {
      this.#changed.clear()
      this.#timers = []
    }
    try {
      // A run that is not in the list may not be in the index yet, and asking for it alone would fail.
      const areKnown = ids.every(id => this.#runs.some(({ runId }) => runId === id))
      if (!areKnown || ids.length > RENEWED_MAX || this.#filter.value !== '') await this.load()
      else for (const id of ids) await this.#renewOne(id)
    } catch (error) {
      this.#failed(error)
    }
  }

  async #renewOne(id) {
    const run = await get(`/v1/runs/${idInPath(id)}`).catch(unlessMissing)
    if (run === undefined) return
    const at = this.#runs.findIndex(({ runId }) => runId === id)
    if (at < 0) return
    this.#runs[at] = run
    this.#show()
  }

  #show() {
    arrange(
      this.#list,
      this.#runs,
      ({ runId }) => runId,
      makeItem,
      (item, run) => this.#renewItem(item, run),
    )
    this.#more.hidden = this.#next === undefined
    this.#none.hidden = this.#runs.length > 0 || this.#filter.value === ''
    this.#count.textContent =
      this.#runs.length === 0 ? '' : `${this.#runs.length}${this.#next === undefined ? '' : '+'}`
    this.#shown()
  }

  #renewItem(item, { runId, status, updatedAt }) {
    const link = item.firstElementChild
    if (runId === this.#current) link.setAttribute('aria-current', 'true')
    else link.removeAttribute('aria-current')
    const state = `${status} ${updatedAt}`
    if (item.dataset.state === state) return
    const isNew = item.dataset.state === undefined
    item.dataset.state = state
    link.lastElementChild.replaceChildren(pill(status), moment(updatedAt))
    // Highlights a change, but not the first rendering.
    if (!isNew) item.classList.add('changed')
  }

  /** Arrow keys move the focus from run to run. */
  #walk(event) {
    const step = { ArrowDown: 'nextElementSibling', ArrowUp: 'previousElementSibling' }[event.key]
    const item = step === undefined ? null : event.target.closest('li')?.[step]
    if (!item) return
    event.preventDefault()
    item.firstElementChild.focus()
  }
}

function makeItem({ runId }) {
  const href = `#/runs/${encodeURIComponent(runId)}`
  const item = element(
    'li',
    {},
    element('a', { href }, words(runId, 'id'), element('span', { class: 'meta' })),
  )
  item.addEventListener('animationend', () => item.classList.remove('changed'))
  return item
}

/** Turns a 404 into undefined. */
export function unlessMissing(error) {
  if (error instanceof Refused && error.status === 404) return undefined
  throw error
}
