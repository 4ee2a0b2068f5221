/** A page without anything from elsewhere; what it shows, it puts in as text. */
export const DOCS_PAGE = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Annals: HTTP API</title>
<h1>Annals: HTTP API</h1>
<p id="about"></p>
<p><a href="/openapi.json">openapi.json</a></p>
<main id="routes"></main>
<script src="/docs/page.js"></script>
</html>
`

export const DOCS_SCRIPT = `'use strict'
const put = (parent, tag, text) => {
  const element = document.createElement(tag)
  element.textContent = text
  parent.append(element)
  return element
}
const shape = schema => JSON.stringify(schema, null, 2)
const show = description => {
  document.getElementById('about').textContent = description.info.description
  const main = document.getElementById('routes')
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, route] of Object.entries(methods)) {
      const details = put(main, 'details', '')
      const summary = put(details, 'summary', '')
      put(summary, 'code', method.toUpperCase() + ' ' + path)
      put(summary, 'span', ' ' + (route.summary || ''))
      const roles = (route.security || []).flatMap(one => Object.values(one).flat())
      put(details, 'p', roles.length ? 'Needs the role ' + roles.join(', ') + '.' : 'Needs no token.')
      const parameters = route.parameters || []
      if (parameters.length) {
        const list = put(details, 'ul', '')
        for (const { name, in: where, required, schema } of parameters) {
          put(list, 'li', name + ' (' + where + (required ? ', required' : '') + ') ' + JSON.stringify(schema || {}))
        }
      }
      for (const [type, { schema }] of Object.entries((route.requestBody || {}).content || {})) {
        put(details, 'p', 'Body, ' + type + ':')
        put(details, 'pre', shape(schema))
      }
      for (const [status, { description: text, content }] of Object.entries(route.responses || {})) {
        put(details, 'p', status + ': ' + text)
        for (const { schema } of Object.values(content || {})) put(details, 'pre', shape(schema))
      }
    }
  }
  put(main, 'h2', 'Schemas')
  for (const [name, schema] of Object.entries((description.components || {}).schemas || {})) {
    const details = put(main, 'details', '')
    put(details, 'summary', name)
    put(details, 'pre', shape(schema))
  }
}
fetch('/openapi.json').then(answer => answer.json()).then(show)
`
