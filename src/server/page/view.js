import { STATUS_WORDS } from './vocabulary.js'

/**
 * The elements of the page. All data from the server are inserted as text, because agents wrote them and they may contain
 * anything.
 */

const TEXT_CHARS_MAX = 20_000
const PREVIEW_CHARS_MAX = 120

/** Makes an element with attributes and children. A string child becomes text, not HTML. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) made.setAttribute(name, value)
  }
  made.append(...children.filter(child => child !== undefined))
  return made
}

/** Text in a `bdi`, so that right-to-left characters in it do not affect the text around it. */
export function words(text, className) {
  return element('bdi', { class: className }, String(text))
}

const STATUS_FIELDS = ['run', 'snapshot', 'step']
const STATUSES = new Map(
  STATUS_WORDS.flatMap(status =>
    STATUS_FIELDS.filter(field => field in status).map(field => [status[field], status]),
  ),
)

/** A status that the run index or the ledger names, as the word that people see. */
export function pill(name) {
  const { word, tone } = STATUSES.get(name) ?? { word: String(name), tone: 'neutral' }
  return element('span', { class: 'pill', 'data-tone': tone }, word)
}

const LOCAL = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'long' })

/** A time in UTC, in the format of the API. The tooltip has it in local time. */
export function moment(time) {
  const date = new Date(time)
  if (Number.isNaN(date.getTime())) return words(time)
  const text = date.toISOString()
  return element('time', { datetime: text, title: LOCAL.format(date) }, text)
}

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS

/** The same texts as `durationText` in core/vocabulary.ts; a test compares them. */
export function duration(ms) {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < MINUTE_MS) return `${(ms / 1_000).toFixed(1)} s`
  if (ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min ${Math.round((ms % MINUTE_MS) / 1_000)} s`
  if (ms >= 2 * DAY_MS) return `${Math.floor(ms / DAY_MS)} d ${Math.floor((ms % DAY_MS) / HOUR_MS)} h`
  return `${Math.floor(ms / HOUR_MS)} h ${Math.round((ms % HOUR_MS) / MINUTE_MS)} min`
}

/** A value on one line; opening it shows all of it. */
export function value(content) {
  if (content === undefined) return undefined
  const line = JSON.stringify(content)
  const preview = line.length > PREVIEW_CHARS_MAX ? `${line.slice(0, PREVIEW_CHARS_MAX)}…` : line
  const details = element('details', { class: 'value' }, element('summary', {}, words(preview)))
  // Rendered only when it is opened: there may be many large values.
  details.addEventListener('toggle', () => {
    if (details.open && details.childElementCount === 1) details.append(pretty(content))
  })
  return details
}

export function pretty(content) {
  const text = JSON.stringify(content, null, 2)
  const cut = text.length > TEXT_CHARS_MAX
  const shown = cut
    ? `${text.slice(0, TEXT_CHARS_MAX)}\n… ${text.length - TEXT_CHARS_MAX} characters more`
    : text
  return element('pre', { tabindex: '0' }, shown)
}

/** A list of terms with their content; terms without content are left out. */
export function facts(pairs) {
  const list = element('dl', { class: 'facts' })
  for (const [term, content] of pairs) {
    if (content === undefined) continue
    list.append(element('div', {}, element('dt', {}, term), element('dd', {}, content)))
  }
  return list
}

export function table(caption, headings, rows) {
  const head = element('tr', {}, ...headings.map(text => element('th', { scope: 'col' }, text)))
  const body = element('tbody', {}, ...rows)
  const made = element(
    'table',
    {},
    element('caption', { class: 'quiet' }, caption),
    element('thead', {}, head),
    body,
  )
  return { scroller: element('div', { class: 'scroller' }, made), body }
}

export function row(cells) {
  return element('tr', {}, ...cells.map(([className, content]) => cell(className, content)))
}

function cell(className, content) {
  return content === undefined
    ? element('td', { class: className })
    : element('td', { class: className }, content)
}

/** Updates the children of a list to match the items. Children whose key stays are reused and updated. */
export function arrange(parent, items, keyOf, make, renew) {
  const known = new Map([...parent.children].map(child => [child.dataset.key, child]))
  let place = parent.firstElementChild
  for (const item of items) {
    const key = keyOf(item)
    let child = known.get(key)
    known.delete(key)
    if (child === undefined) {
      child = make(item)
      child.dataset.key = key
    }
    renew(child, item)
    if (child === place) place = place.nextElementSibling
    else parent.insertBefore(child, place)
  }
  for (const child of known.values()) child.remove()
}
