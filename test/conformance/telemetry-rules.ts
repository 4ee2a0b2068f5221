/** The decisions of the telemetry service's contract, in short: what each asks for. Tests name them by number. */
export const TELEMETRY_RULES: Readonly<Record<string, string>> = {
  TD1: 'A batch is checked item by item; `errors` lists `{index, detail}`; no array, or one of 0 or more than 1000, is 422.',
  TD2: '`counts` of names; `commit_url` and `repo_url` for GitHub, GitLab and Bitbucket, without credentials; null for others.',
  TD3: '`/telemetry/{run_id}`: the newest run of that id, and all descendants in one list by `start_time`.',
  TD4: 'Status codes: 400, 413, 415, 405, 422, 403; two `Authorization` headers are 400.',
  TD5: 'Unknown fields are ignored, null is absent; times in UTC with milliseconds; JSON as objects; the later insert first.',
  TD6: 'Token and rate limit from the environment, off by default; what can’t be meant keeps the server from starting.',
  TD7: '`/health` names the kind of store, never a path.',
  TD8: 'The ids of children, and times in ids.',
}
