import type { ServerContext } from './server-env.ts'

/**
 * A header of the request; its name in lower case. From Node's own headers where there are some: a `Headers` made of them
 * for each request costs more than all that is looked up in it.
 */
export function headerOf(c: ServerContext, name: string): string | undefined {
  const incoming = c.env?.incoming
  if (incoming === undefined) return c.req.header(name)
  const value = incoming.headers[name]
  return Array.isArray(value) ? value.join(', ') : value
}
