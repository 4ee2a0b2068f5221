import { OpenAPIHono } from '@hono/zod-openapi'
import type { Annals } from 'annals'
import { serveBundles } from './bundle-routes.ts'
import { serveCells } from './cell-routes.ts'
import { serveDocs } from './docs-routes.ts'
import { serveEvents } from './event-routes.ts'
import { guard } from './guard.ts'
import { serveKv } from './kv-routes.ts'
import { serveLaunches } from './launch-routes.ts'
import { serveMonitoring } from './monitoring-routes.ts'
import { type ServerOptions, settingsOf } from './options.ts'
import { servePage } from './page-routes.ts'
import { refusal } from './refusal.ts'
import { serveRuns } from './run-routes.ts'
import { serveScopes } from './scope-routes.ts'
import type { ServerEnv } from './server-env.ts'
import { Services } from './services.ts'
import { SplitRouter } from './split-router.ts'
import { serveStreams } from './stream-routes.ts'
import { telemetryRoutes } from './telemetry-routes.ts'
import { serveTokens } from './token-routes.ts'
import { serveTraces } from './trace-routes.ts'
import { unmatched } from './unmatched.ts'

/** Creates the routes of a server without a socket: `app.fetch(request)` answers a request. */
export function createApp(db: Annals, options: ServerOptions = {}): OpenAPIHono<ServerEnv> {
  return appOver(new Services(db, settingsOf(options)))
}

export function appOver(services: Services): OpenAPIHono<ServerEnv> {
  const app = new OpenAPIHono<ServerEnv>({ router: new SplitRouter() })
  app.use(guard(services))
  app.onError((error, c) => refusal(c, error))
  app.notFound(c => refusal(c, unmatched(app, c)))
  serveRuns(app, services)
  serveEvents(app)
  serveBundles(app)
  serveScopes(app)
  serveStreams(app, services)
  serveKv(app)
  serveCells(app, services)
  serveTraces(app, services)
  serveLaunches(app, services)
  serveTokens(app, services)
  serveMonitoring(app, services)
  app.route('/', telemetryRoutes(services.db))
  for (const routes of services.settings.routes) app.route('/', routes)
  serveDocs(app)
  servePage(app)
  return app
}
