import { element } from './view.js'

/** Shows the OpenAPI document as a page. */

const SCHEMA_PREFIX = '#/components/schemas/'

/** Text in which the parts between backticks are code. */
function prose(text) {
  return text
    .split('`')
    .map((part, i) => (i % 2 === 1 ? element('code', {}, part) : document.createTextNode(part)))
}

/** A link to a named schema, or the schema itself. */
function shape(schema) {
  const name = schema.$ref?.startsWith(SCHEMA_PREFIX) ? schema.$ref.slice(SCHEMA_PREFIX.length) : undefined
  if (name !== undefined) return element('a', { href: `#schema-${name}` }, name)
  return element('pre', {}, JSON.stringify(schema, null, 2))
}

/** The type and limits of a parameter in a few words. */
function kind({ type, enum: choices, minimum, maximum, default: byDefault, items }) {
  const parts = [
    choices === undefined ? (items === undefined ? type : `${items.type}, repeated`) : choices.join(' | '),
  ]
  if (minimum !== undefined && maximum !== undefined) parts.push(`${minimum} to ${maximum}`)
  else if (minimum !== undefined) parts.push(`from ${minimum}`)
  if (byDefault !== undefined) parts.push(`default ${byDefault}`)
  return parts.filter(part => part !== undefined).join(', ')
}

function table(titles, rows) {
  const head = element('tr', {}, ...titles.map(title => element('th', { scope: 'col' }, title)))
  const body = rows.map(cells => element('tr', {}, ...cells.map(cell => element('td', {}, ...cell))))
  return element(
    'div',
    { class: 'scroller' },
    element('table', {}, element('thead', {}, head), element('tbody', {}, ...body)),
  )
}

function bodyOf({ requestBody }) {
  const contents = Object.entries(requestBody?.content ?? {})
  if (contents.length === 0) return []
  const parts = contents.flatMap(([type, { schema }]) => [
    element('p', {}, element('code', {}, type)),
    shape(schema),
  ])
  return [element('h3', {}, 'Body'), ...parts]
}

/** Shows the schemas of successful answers. Errors all have the same schema, so only their codes are listed. */
function answersOf({ responses = {} }) {
  const all = Object.entries(responses)
  const isGood = ([status]) => status.startsWith('2')
  const good = all
    .filter(isGood)
    .flatMap(([status, { description, content = {} }]) => [
      element('p', {}, element('code', {}, status), ' ', ...prose(description)),
      ...Object.entries(content).flatMap(([type, { schema }]) => [
        element('p', { class: 'hint' }, element('code', {}, type)),
        shape(schema),
      ]),
    ])
  const bad = all.filter(one => !isGood(one))
  return [
    element('h3', {}, 'Responses'),
    ...good,
    table(
      ['Status', 'When'],
      bad.map(([status, { description }]) => [[element('code', {}, status)], prose(description)]),
    ),
  ]
}

function inside(route) {
  const roles = (route.security ?? []).flatMap(one => Object.values(one).flat())
  const parameters = route.parameters ?? []
  return [
    element('p', {}, roles.length > 0 ? `Needs the role ${roles.join(', ')}.` : 'Needs no token.'),
    ...(parameters.length === 0
      ? []
      : [
          element('h3', {}, 'Parameters'),
          table(
            ['Name', 'In', 'What', ''],
            parameters.map(({ name, in: where, required, schema = {} }) => [
              [element('code', {}, name)],
              [where],
              [
                kind(schema),
                ...(schema.description === undefined ? [] : [' — ', ...prose(schema.description)]),
              ],
              [required ? 'required' : ''],
            ]),
          ),
        ]),
    ...bodyOf(route),
    ...answersOf(route),
  ]
}

function routeOf(path, method, route) {
  const name = element('span', { class: 'pill method', 'data-method': method }, method.toUpperCase())
  const said = element('span', { class: 'said' }, ...prose(route.summary ?? ''))
  const summary = element('summary', {}, name, element('code', { class: 'path' }, path), said)
  return element(
    'details',
    { class: 'route', id: route.operationId },
    summary,
    element('div', { class: 'inside' }, ...inside(route)),
  )
}

function section(title, children) {
  const id = `group-${title}`
  return { id, title, node: element('section', { id }, element('h2', {}, title), ...children) }
}

function show({ info, paths, components = {} }) {
  document.getElementById('about').replaceChildren(...prose(info.description))
  const groups = new Map()
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, route] of Object.entries(methods)) {
      const [tag = 'server'] = route.tags ?? []
      groups.set(tag, [...(groups.get(tag) ?? []), routeOf(path, method, route)])
    }
  }
  const schemas = Object.entries(components.schemas ?? {}).map(([name, schema]) =>
    element(
      'details',
      { class: 'route', id: `schema-${name}` },
      element('summary', {}, element('code', {}, name)),
      element('pre', {}, JSON.stringify(schema, null, 2)),
    ),
  )
  const sections = [...groups].map(([tag, routes]) => section(tag, routes))
  sections.push(section('schemas', schemas))
  document
    .getElementById('index')
    .replaceChildren(...sections.map(({ id, title }) => element('a', { href: `#${id}` }, title)))
  document.getElementById('routes').replaceChildren(...sections.map(({ node }) => node))
  reveal()
}

/** Opens the element that the address names. */
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)))
  if (target === null) return
  if (target instanceof HTMLDetailsElement) target.open = true
  target.scrollIntoView()
}

window.addEventListener('hashchange', reveal)
try {
  const answer = await fetch('/openapi.json')
  if (!answer.ok) throw new Error(`the server answers ${answer.status}`)
  show(await answer.json())
} catch (error) {
  const text = `The description could not be loaded: ${error.message}.`
  document.getElementById('routes').replaceChildren(element('p', { class: 'error', role: 'alert' }, text))
}
