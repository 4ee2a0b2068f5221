import type { Result, Router } from 'hono/router'
import { RegExpRouter } from 'hono/router/reg-exp-router'
import { SmartRouter } from 'hono/router/smart-router'
import { TrieRouter } from 'hono/router/trie-router'

/**
 * Gives the telemetry routes their own router. Hono's fast router cannot be used at all if one path has a word where another has
 * an id, as in `/api/v1/runs/batch` and `/api/v1/runs/{event_id}/…`.
 */
export class SplitRouter<T> implements Router<T> {
  readonly name = 'SplitRouter'
  readonly #telemetry = new TrieRouter<T>()
  readonly #rest = new SmartRouter<T>({ routers: [new RegExpRouter<T>(), new TrieRouter<T>()] })

  add(method: string, path: string, handler: T): void {
    const isForAll = path === '*' || path === '/*'
    if (isForAll || isTelemetry(path)) this.#telemetry.add(method, path, handler)
    if (isForAll || !isTelemetry(path)) this.#rest.add(method, path, handler)
  }

  match(method: string, path: string): Result<T> {
    return isTelemetry(path) ? this.#telemetry.match(method, path) : this.#rest.match(method, path)
  }
}

function isTelemetry(path: string): boolean {
  return path.startsWith('/api/')
}
