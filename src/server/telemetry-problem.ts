/** A problem with one field, in the form of the telemetry interface. */
export interface FieldProblem {
  readonly loc: readonly (string | number)[]
  readonly msg: string
  readonly type: string
}

/** An error in the form of the telemetry interface, `{detail}`. */
export class TelemetryProblem extends Error {
  readonly status: 400 | 404 | 422
  readonly detail: string | readonly FieldProblem[]

  constructor(status: 400 | 404 | 422, detail: string | readonly FieldProblem[]) {
    super(typeof detail === 'string' ? detail : 'fields are invalid')
    this.status = status
    this.detail = detail
  }
}
