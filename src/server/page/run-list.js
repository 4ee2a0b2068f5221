import { get, idInPath, Refused } from './api.js'
import { arrange, element, moment, pill, words } from './view.js'

const PAGE = 50
/** More the server gives at no time. */
const ASKED_MAX = 1_000
const SOON_MS = 150
/** The index of runs follows the events a moment later. */
const LATER_MS = 1_200
/** Above this it is less work to read the list again. */
const RENEWED_MAX = 10

/** The runs, newest first: read once, then run by run as events come. */
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
    // Somebody has chosen another one meanwhile.
    if (status !== this.#filter.value) return
    this.#runs = runs
    this.#next = next
    this.#show()
  }

  /** Something happened to this run. */
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
      // One that is not in the list yet may not be in the index either: asking for it alone would be an error.
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
    // Seen out of the corner of the eye, and not at the first sight of all.
    if (!isNew) item.classList.add('changed')
  }

  /** Arrows go from run to run. */
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

/** Undefined for what is not there. */
export function unlessMissing(error) {
  if (error instanceof Refused && error.status === 404) return undefined
  throw error
}
