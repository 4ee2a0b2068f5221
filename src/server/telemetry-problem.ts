/** What is wrong with one field, as the telemetry interface says it. */
export interface FieldProblem {
  readonly loc: readonly (string | number)[]
  readonly msg: string
  readonly type: string
}

/** A refusal in the telemetry interface's own form, `{detail}`, where no error code says it. */
export class TelemetryProblem extends Error {
  readonly status: 400 | 404 | 422
  readonly detail: string | readonly FieldProblem[]

  constructor(status: 400 | 404 | 422, detail: string | readonly FieldProblem[]) {
    super(typeof detail === 'string' ? detail : 'fields break their rules')
    this.status = status
    this.detail = detail
  }
}
