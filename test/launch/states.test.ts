import { describe, expect, test } from 'vitest'
import { DOCS_STATES, SECTION_STATES } from '../../src/launch/docs/pipeline.ts'
import { checkStates, isLegalTransition, type StateModel, stableStateOf } from '../../src/launch/states.ts'
import { failureOf } from './failure-of.ts'
import { writeFullLog } from './written-log.ts'

describe('states', () => {
  test('N1: a run has fifteen states, a section six', () => {
    expect(Object.keys(DOCS_STATES.states)).toEqual([
      ...['CREATED', 'CLONED_INPUTS', 'INGESTED', 'FACTS_READY', 'PLAN_READY', 'DRAFTING', 'DRAFT_READY'],
      ...['LINKING', 'VALIDATING', 'FIXING', 'READY_FOR_PR', 'PR_OPENED', 'DONE', 'FAILED', 'CANCELLED'],
    ])
    expect(SECTION_STATES).toEqual([
      ...['NOT_STARTED', 'OUTLINED', 'DRAFTED', 'MERGED_IN_WORKTREE', 'DONE', 'BLOCKED'],
    ])
  })

  test('ND1: exactly the transitions of the table are legal', () => {
    const path =
      'CREATED CLONED_INPUTS INGESTED FACTS_READY PLAN_READY DRAFTING DRAFT_READY LINKING VALIDATING'
    const steps = [...path.split(' '), 'READY_FOR_PR', 'PR_OPENED', 'DONE']
    const legal = new Set(steps.slice(1).map((to, i) => `${steps[i]}→${to}`))
    legal.add('VALIDATING→FIXING').add('FIXING→VALIDATING')
    const states = Object.keys(DOCS_STATES.states)
    const ended = ['DONE', 'FAILED', 'CANCELLED']
    for (const from of states.filter(state => !ended.includes(state))) {
      legal.add(`${from}→FAILED`).add(`${from}→CANCELLED`)
    }
    const found = states.flatMap(from =>
      states.filter(to => isLegalTransition(DOCS_STATES, from, to)).map(to => `${from}→${to}`),
    )
    expect(new Set(found)).toEqual(legal)
  })

  test('ND1: an illegal transition changes nothing', async () => {
    const { journal, log } = await writeFullLog()
    const { text } = log
    const { state } = journal
    const moves = [
      ['DONE', 'CREATED'],
      ['CREATED', 'CLONED_INPUTS'],
      ['DONE', 'NOWHERE'],
    ]
    for (const [old_state, new_state] of moves) {
      await expect(journal.append('RUN_STATE_CHANGED', { old_state, new_state })).rejects.toMatchObject({
        code: 'ILLEGAL_STATE',
      })
    }
    expect(log.text).toBe(text)
    expect(journal.state).toBe(state)
  })

  test('ND2: transitional states rewind, stable ones stay', () => {
    const back = Object.keys(DOCS_STATES.states).map(state => [state, stableStateOf(DOCS_STATES, state)])
    const rewinds = Object.fromEntries(back.filter(([state, to]) => state !== to))
    const draft = 'DRAFT_READY'
    expect(rewinds).toEqual({ DRAFTING: 'PLAN_READY', LINKING: draft, VALIDATING: draft, FIXING: draft })
  })

  test('ND1: a model in which a run could get stuck is refused with the reason', () => {
    const good: StateModel = {
      initial: 'A',
      done: 'Z',
      failed: 'F',
      cancelled: 'C',
      states: {
        A: { kind: 'stable', next: ['B'] },
        B: { kind: 'transitional', next: ['Z'], rewindTo: 'A' },
        Z: { kind: 'terminal' },
        F: { kind: 'terminal' },
        C: { kind: 'terminal' },
      },
    }
    checkStates(good)
    const { states } = good
    const without: unknown = { kind: 'transitional', next: ['Z'] }
    const bad: [Partial<StateModel>, string][] = [
      [{ states: { ...states, X: { kind: 'stable', next: ['Z'] } } }, "can't be reached"],
      [{ states: { ...states, B: without as StateModel['states'][string] } }, 'give it a rewindTo'],
      [
        { states: { ...states, B: { kind: 'transitional', next: ['Z'], rewindTo: 'B' } } },
        'not a stable state',
      ],
      [{ states: { ...states, B: { kind: 'stable', next: ['A'] } } }, 'never leads to Z'],
      [{ states: { ...states, A: { kind: 'stable', next: ['B', 'Q'] } } }, 'which is not a state'],
      [{ initial: 'Q' }, 'not one of the states'],
      [{ done: 'A' }, 'must be terminal'],
      [{ done: 'F' }, 'used for two of done, failed and cancelled'],
    ]
    for (const [change, message] of bad) {
      const failure = failureOf(() => checkStates({ ...good, ...change }))
      expect(failure.code).toBe('INVALID_ARGUMENT')
      expect(failure.message).toContain(message)
    }
  })
})
