/** The formats that the docs pipeline adds to those of every launch (`../formats.ts`). */

/** The formats of single values. */
export const DOCS_VALUES = {
  'section-state': {
    enum: ['NOT_STARTED', 'OUTLINED', 'DRAFTED', 'MERGED_IN_WORKTREE', 'DONE', 'BLOCKED'],
  },
} as const

/** The formats of objects. */
export const DOCS_RECORDS = {
  'cloned-input': {
    name: 'name',
    /** Where the input came from, such as a commit or a URL. */
    ref: 'text',
    'sha256?': 'sha256',
  },
  snapshot: { '...': 'general-snapshot', section_states: 'section-state{}' },
  'pull-request': { branch: 'name', commit_sha: 'name', 'url?': 'text' },
} as const

/** The payloads of the pipeline's events. */
export const DOCS_PAYLOADS = {
  INPUTS_CLONED: { inputs: 'cloned-input[]' },
  SECTION_STATE_CHANGED: { section: 'name', old_state: 'section-state', new_state: 'section-state' },
  PR_OPENED: { '...': 'pull-request' },
} as const
