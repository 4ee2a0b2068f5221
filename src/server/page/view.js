/**
 * What things look like. Everything that comes from the server is put in as text: it was written by whoever runs
 * agents here, and may be anything.
 */

const TEXT_CHARS_MAX = 20_000
const PREVIEW_CHARS_MAX = 120

/** An element with attributes and children; a text child stays text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) made.setAttribute(name, value)
  }
  made.append(...children.filter(child => child !== undefined))
  return made
}

/** Isolated, so that what is written from right to left, or says so, changes nothing around it. */
export function words(text, className) {
  return element('bdi', { class: className }, String(text))
}

/** `RUNNING` and `Active` are words of different layers: they look alike. */
export function pill(status) {
  const name = String(status).toLowerCase()
  return element(
    'span',
    { class: 'pill', 'data-status': name },
    name.slice(0, 1).toUpperCase() + name.slice(1),
  )
}

const TODAY = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' })
const OTHER_DAY = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' })

export function moment(time) {
  const date = new Date(time)
  if (Number.isNaN(date.getTime())) return words(time)
  const isToday = date.toDateString() === new Date().toDateString()
  const shown = (isToday ? TODAY : OTHER_DAY).format(date)
  return element('time', { datetime: date.toISOString(), title: date.toISOString() }, shown)
}

export function duration(ms) {
  if (ms < 1_000) return `${ms} ms`
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1_000)} s`
  return `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} min`
}

/** A value in one line, and as a whole when it is opened. */
export function value(content) {
  if (content === undefined) return undefined
  const line = JSON.stringify(content)
  const preview = line.length > PREVIEW_CHARS_MAX ? `${line.slice(0, PREVIEW_CHARS_MAX)}…` : line
  const details = element('details', { class: 'value' }, element('summary', {}, words(preview)))
  // Made when it is looked at: there may be many, and large ones.
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

/** Pairs of a term and what there is to say; pairs without that are left out. */
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

/** Brings the children of a list in line with items, each under its key, without touching those that stay as they are. */
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
