import { get, idInPath, Refused } from './api.js'
import { unlessMissing } from './run-list.js'
import { duration, element, facts, moment, pill, pretty, row, table, value, words } from './view.js'
import { VERDICT } from './vocabulary.js'

/** How many events are shown first, and how many more at a time. */
const PAGE = 500
const STEPS_MAX = 200
const SOON_MS = 150

/** One run: its status, its snapshot and its events. */
export class RunDetail {
  #main = document.getElementById('detail')
  #runId
  #parts
  #failed
  /** Positions of the first and last event that are shown, counted from 1. */
  #first = 0
  #last = 0
  #timer
  #loads = 0
  #isInLedger = false

  constructor(failed) {
    this.#failed = failed
  }

  /** Shows a run and moves the focus to its title. */
  async show(runId) {
    this.#runId = runId
    this.#parts = undefined
    this.#first = 0
    this.#last = 0
    await this.load(true)
  }

  clear(content) {
    this.#runId = undefined
    this.#parts = undefined
    this.#main.replaceChildren(content)
  }

  /** Reads the run again, and the events after the last one shown. */
  async load(isFocused = false) {
    const runId = this.#runId
    if (runId === undefined) return
    const load = ++this.#loads
    const path = `/v1/runs/${idInPath(runId)}`
    const [run, { events }] = await Promise.all([
      get(path).catch(unlessMissing),
      get(`${path}/events?limit=1`),
    ])
    // A run without events in the ledger has no snapshot.
    const snapshot =
      events.length === 0 ? undefined : await get(`${path}/snapshot?fresh=true`).catch(unlessMissing)
    if (runId !== this.#runId || load !== this.#loads) return
    if (this.#isInLedger !== (snapshot !== undefined)) this.#beginAnew()
    this.#isInLedger = snapshot !== undefined
    if (run === undefined && snapshot === undefined) {
      this.#parts = undefined
      this.#main.replaceChildren(
        element('h2', {}, 'There is no such run'),
        element('p', {}, words(runId, 'id'), ' does not exist or was deleted.'),
      )
      return
    }
    if (this.#parts === undefined) {
      this.#parts = makeParts(
        runId,
        () => this.#verify(),
        () => this.#earlier().catch(this.#failed),
      )
      this.#main.replaceChildren(...this.#parts.all)
      if (isFocused) this.#parts.title.focus()
    }
    this.#parts.heading.replaceChildren(...headingOf(run, snapshot))
    this.#parts.snapshot.replaceChildren(...snapshotOf(snapshot, this.#isRawOpen()))
    if (snapshot === undefined) await this.#catchUpLog(runId)
    else await this.#catchUp(runId, snapshot.lastEventSeq)
  }

  /** Reads a run again that is not in the ledger, so that no stream announces its events. */
  async loadUnfollowed() {
    if (!this.#isInLedger) await this.load()
  }

  /** Adds an event that has just arrived. */
  receive(record) {
    if (record.runId !== this.#runId || this.#parts === undefined) return
    if (record.runSeq === this.#last + 1) this.#append([record])
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      this.load().catch(this.#failed)
    }, SOON_MS)
  }

  async #catchUp(runId, lastSeq) {
    if (this.#last === 0) {
      this.#last = Math.max(0, lastSeq - PAGE)
      this.#first = this.#last + 1
    }
    while (this.#last < lastSeq) {
      const path = `/v1/runs/${idInPath(runId)}/events?afterSeq=${this.#last}&limit=${PAGE}`
      const { events } = await get(path)
      if (runId !== this.#runId || events.length === 0) return
      this.#append(events.filter(({ runSeq }) => runSeq > this.#last))
    }
  }

  #append(records) {
    if (records.length === 0) return
    this.#parts.events.append(...records.map(eventRow))
    this.#last = records[records.length - 1].runSeq
    this.#count()
  }

  async #earlier() {
    const runId = this.#runId
    const from = Math.max(0, this.#first - 1 - PAGE)
    const end = this.#first - 1
    const records = []
    // A page of large events has fewer than were asked for.
    for (let at = from; at < end; at = records[records.length - 1].runSeq) {
      const limit = end - at
      const { events } = this.#isInLedger
        ? await get(`${this.#path(runId)}/events?afterSeq=${at}&limit=${limit}`)
        : await get(`${this.#path(runId)}/log?from=${at}&limit=${limit}`)
      if (runId !== this.#runId || end !== this.#first - 1 || events.length === 0) return
      records.push(...(this.#isInLedger ? events : events.map(fromLog)))
    }
    this.#parts.events.prepend(...records.map(eventRow))
    this.#first = from + 1
    this.#count()
  }

  #count() {
    const { counted, earlier } = this.#parts
    const shown = this.#last - this.#first + 1
    counted.textContent = this.#first > 1 ? `the last ${shown} of ${this.#last}` : `${this.#last}`
    earlier.hidden = this.#first <= 1
  }

  /** Shows the run's own log, for a run that is not in the ledger. */
  async #catchUpLog(runId) {
    if (this.#last === 0) {
      const length = await this.#lengthOfLog(runId)
      // Another load may have finished meanwhile.
      if (runId !== this.#runId || this.#isInLedger) return
      if (this.#last === 0) {
        this.#last = Math.max(0, length - PAGE)
        this.#first = this.#last + 1
      }
    }
    for (let isMore = true; isMore; ) {
      const { events, next } = await get(`${this.#path(runId)}/log?from=${this.#last}&limit=${PAGE}`)
      if (runId !== this.#runId || this.#parts === undefined || this.#isInLedger) return
      this.#append(events.map(fromLog).filter(({ runSeq }) => runSeq > this.#last))
      isMore = next !== undefined
    }
  }

  /** Finds the length of a log, which the API does not tell, by doubling and then halving. */
  async #lengthOfLog(runId) {
    const isBeyond = async at =>
      (await get(`${this.#path(runId)}/log?from=${at}&limit=1`)).events.length === 0
    if (await isBeyond(PAGE)) return 0
    let [low, high] = [PAGE, PAGE * 2]
    while (!(await isBeyond(high))) [low, high] = [high, high * 2]
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2)
      if (await isBeyond(middle)) high = middle
      else low = middle
    }
    return high
  }

  /** Starts over, because the run has got its first event in the ledger. */
  #beginAnew() {
    this.#first = 0
    this.#last = 0
    this.#parts?.events.replaceChildren()
  }

  #path(runId = this.#runId) {
    return `/v1/runs/${idInPath(runId)}`
  }

  async #verify() {
    const { verdict } = this.#parts
    verdict.textContent = 'verifying…'
    try {
      const found = await get(`${this.#path()}${this.#isInLedger ? '' : '/log'}/verification`)
      verdict.dataset.valid = String(found.isValid)
      verdict.textContent = found.isValid
        ? `${VERDICT.good}: ${found.events ?? found.length} events`
        : `${VERDICT.bad} at event ${found.firstInvalid}: ${found.error}`
    } catch (error) {
      delete verdict.dataset.valid
      verdict.textContent = error instanceof Refused ? error.message : 'the server does not answer'
      if (error instanceof Refused && error.status === 401) this.#failed(error)
    }
  }

  #isRawOpen() {
    return this.#parts.snapshot.querySelector('details')?.open === true
  }
}

function makeParts(runId, verify, earlier) {
  const title = element('h2', { tabindex: '-1', class: 'run-title' }, words(runId, 'id'))
  const heading = element('div', { class: 'heading' })
  const snapshot = element('section', { 'aria-label': 'Snapshot' })
  const counted = element('span', { class: 'count' })
  const verdict = element('span', { role: 'status', class: 'verdict' })
  const check = element('button', { type: 'button' }, 'Verify the chain')
  check.addEventListener('click', verify)
  const older = element('button', { type: 'button', class: 'wide', hidden: '' }, 'Show earlier events')
  older.addEventListener('click', earlier)
  const { scroller, body } = table(
    'Events of the run, in order',
    ['#', 'Time', 'Event', 'Step', 'Payload'],
    [],
  )
  const head = element(
    'div',
    { class: 'section-head' },
    element('h3', {}, 'Events ', counted),
    verdict,
    check,
  )
  const events = element('section', { 'aria-label': 'Events' }, head, older, scroller)
  return {
    all: [title, heading, snapshot, events],
    title,
    heading,
    snapshot,
    events: body,
    counted,
    earlier: older,
    verdict,
  }
}

function headingOf(run, snapshot) {
  const status = snapshot?.status ?? run?.status
  const began = snapshot?.startedAt ?? run?.createdAt
  const ended = snapshot?.completedAt ?? run?.completedAt
  const tags = run?.tags ?? []
  return [
    facts([
      ['Status', pill(status)],
      ['Started', began === undefined ? undefined : moment(began)],
      ['Ended', ended === undefined ? undefined : moment(ended)],
      ['Took', ended === undefined ? undefined : duration(new Date(ended) - new Date(began))],
      ['Parent', run?.parentRun === undefined ? undefined : runLink(run.parentRun)],
      [
        'Tags',
        tags.length === 0
          ? undefined
          : element('span', { class: 'tags' }, ...tags.map(tag => words(tag, 'tag'))),
      ],
      ['Error', run?.error === undefined ? undefined : words(run.error, 'error')],
    ]),
  ]
}

function runLink(runId) {
  return element('a', { href: `#/runs/${encodeURIComponent(runId)}` }, words(runId, 'id'))
}

function snapshotOf(snapshot, isRawOpen) {
  const title = element('h3', {}, 'Snapshot')
  if (snapshot === undefined)
    return [title, element('p', { class: 'hint' }, 'This run has no events in the ledger.')]
  const { steps, invalidEvents, lastEventSeq, hash } = snapshot
  const raw = element('details', {}, element('summary', {}, 'As JSON'))
  // Rendered only when it is opened: it may be large.
  raw.addEventListener('toggle', () => {
    if (raw.open && raw.childElementCount === 1) raw.append(pretty(snapshot))
  })
  raw.open = isRawOpen
  const shown = steps.slice(-STEPS_MAX)
  const hasErrors = shown.some(({ error }) => error !== undefined)
  const headings = ['Step', 'Status', 'Attempt', 'Started', 'Ended', ...(hasErrors ? ['Error'] : [])]
  const rows = shown.map(step =>
    row([
      ['id', words(step.stepId)],
      ['status', pill(step.status)],
      ['number', element('span', {}, String(step.logicalAttemptId))],
      ['time', step.startedAt === undefined ? undefined : moment(step.startedAt)],
      ['time', step.completedAt === undefined ? undefined : moment(step.completedAt)],
      ...(hasErrors ? [['', value(step.error)]] : []),
    ]),
  )
  const { scroller } = table('Steps of the run', headings, rows)
  return [
    title,
    facts([
      ['Up to event', String(lastEventSeq)],
      [
        'Invalid',
        invalidEvents === 0
          ? undefined
          : words(
              `${invalidEvents} ${invalidEvents === 1 ? 'event' : 'events'} that no transition allows`,
              'error',
            ),
      ],
      ['Hash', element('code', { title: hash }, `${String(hash).slice(0, 16)}…`)],
    ]),
    ...(rows.length === 0 ? [] : [scroller]),
    ...(steps.length <= STEPS_MAX
      ? []
      : [element('p', { class: 'hint' }, `the last ${STEPS_MAX} of ${steps.length} steps`)]),
    raw,
  ]
}

function eventRow({ runSeq, number = runSeq, persistedAt, eventType, stepId, payload }) {
  return row([
    ['number', String(number)],
    ['time', moment(persistedAt)],
    ['type', words(eventType)],
    ['id', stepId === undefined ? undefined : words(stepId)],
    ['payload', value(payload)],
  ])
}

/** An event of a run's own log, in the shape of a ledger event. Its number stays that of the API, which begins with 0. */
function fromLog({ sequence, timestamp, type, payload }) {
  return { runSeq: sequence + 1, number: sequence, persistedAt: timestamp, eventType: type, payload }
}
