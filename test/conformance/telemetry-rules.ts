/** The rules of the telemetry service's contract, one sentence each. Tests refer to them by number. */
export const TELEMETRY_RULES: Readonly<Record<string, string>> = {
  TD1: 'A batch is checked item by item; `errors` lists `{index, detail}`; a body that is no array of 1 to 1000 items is 422.',
  TD2: 'Names have `counts`; `commit_url` and `repo_url` for GitHub, GitLab and Bitbucket, are without credentials, and null for other hosts.',
  TD3: '`/telemetry/{run_id}` returns the newest run with that id and all its descendants in one list by `start_time`.',
  TD4: 'Faults have their status codes: 400, 403, 405, 413, 415, 422; two `Authorization` headers are 400.',
  TD5: 'Unknown fields are ignored and null means absent; times are in UTC with milliseconds, JSON is returned as objects, and later inserts come first.',
  TD6: 'Token and rate limit come from the environment and are off by default; an invalid setting keeps the server from starting.',
  TD7: '`/health` names the kind of the store, never a path.',
  TD8: 'Ids of child runs are built from the parent’s id and contain no colon; times in them have no punctuation.',
}
