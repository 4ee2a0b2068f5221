import type { ServerContext } from './server-env.ts'

/**
 * A request header, by its lower-case name. Reads Node's own headers if there is a socket: building a `Headers` object for each
 * request costs more than all lookups.
 */
export function headerOf(c: ServerContext, name: string): string | undefined {
  const incoming = c.env?.incoming
  if (incoming === undefined) return c.req.header(name)
  const value = incoming.headers[name]
  return Array.isArray(value) ? value.join(', ') : value
}
