/** A telemetry service in memory that can be down. It records what it has accepted, in order. */
export class TelemetryTwin {
  /** The runs by event id. */
  runs: ReadonlyMap<string, Readonly<Record<string, unknown>>> = new Map()
  /** Method, id and summary of each accepted request, including repeated ones. */
  accepted: readonly string[] = []
  /** Whether the service is down for the n-th request, from 0. */
  isDown: (n: number) => boolean = () => false
  #requests = 0

  copy(): TelemetryTwin {
    const copy = new TelemetryTwin()
    copy.runs = this.runs
    copy.accepted = this.accepted
    return copy
  }

  /** The status of a run; undefined if the service does not know the run. */
  statusOf(runId: string): unknown {
    return [...this.runs.values()].find(run => run['run_id'] === runId)?.['status']
  }

  readonly fetch = async (url: string, init: RequestInit): Promise<Response> => {
    if (this.isDown(this.#requests++)) throw new Error('nobody is there')
    const { pathname } = new URL(url)
    const payload = JSON.parse(String(init.body)) as Record<string, unknown>
    const id = pathname.split('/')[4] ?? String(payload['event_id'])
    const known = this.runs.get(id)
    const isPost = pathname.split('/').length === 4
    if (isPost === false && known === undefined) return answer(404, { detail: 'no such run' })
    this.accepted = [...this.accepted, `${String(init.method)} ${id} ${String(payload['output_summary'])}`]
    if (isPost && known !== undefined) return answer(200, { status: 'duplicate', event_id: id })
    const runs = new Map(this.runs)
    runs.set(id, { ...known, ...payload })
    this.runs = runs
    return answer(isPost ? 201 : 200, { event_id: id })
  }
}

function answer(status: number, body: object): Response {
  return new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json' } })
}
