import { expect, test } from 'vitest'
import { newId } from '../../../src/core/id.ts'
import { RUNS, type Service } from './service.ts'

/** The commit of a run and its URL. */
export function testGitCommits({ get, post, posted }: Service): void {
  test('a commit is associated and replaces all fields of an earlier one', async () => {
    const id = await posted({ git_repo: 'git@github.com:o/n.git', run_id: 'committed' })
    const path = `${RUNS}/${id}/associate-commit`
    const first = {
      commit_hash: 'abcdef1',
      commit_source: 'llm',
      commit_author: 'me',
      commit_timestamp: '2026-11-15T03:30:00+00:30',
    }
    const { status, body } = await post(path, first)
    expect([status, body]).toEqual([
      200,
      { status: 'success', event_id: id, run_id: 'committed', commit_hash: 'abcdef1' },
    ])
    expect((await get(`${RUNS}/${id}`)).body).toMatchObject({
      git_commit_hash: 'abcdef1',
      git_commit_source: 'llm',
      git_commit_author: 'me',
      git_commit_timestamp: '2026-11-15T03:00:00.000Z',
    })
    const hash = `${'ABCDEF'.repeat(6)}0123`
    expect((await post(path, { commit_hash: hash, commit_source: 'ci' })).status).toBe(200)
    expect((await get(`${RUNS}/${id}`)).body).toMatchObject({
      git_commit_hash: hash,
      git_commit_author: null,
    })
    expect((await get(`${RUNS}/${id}/commit-url`)).body).toEqual({
      commit_url: `https://github.com/o/n/commit/${hash}`,
    })
    expect((await get(`${RUNS}/${id}/repo-url`)).body).toEqual({ repo_url: 'https://github.com/o/n' })
  })

  test.each([
    [{ commit_source: 'ci' }, 'commit_hash'],
    [{ commit_hash: 'abcdef1' }, 'commit_source'],
    [{ commit_hash: 'abcdef', commit_source: 'ci' }, 'commit_hash'],
    [{ commit_hash: 'g'.repeat(8), commit_source: 'ci' }, 'commit_hash'],
    [{ commit_hash: 'a'.repeat(41), commit_source: 'ci' }, 'commit_hash'],
    [{ commit_hash: 'abcdef1', commit_source: 'robot' }, 'commit_source'],
    [{ commit_hash: 'abcdef1', commit_source: 'ci', commit_timestamp: 'now' }, 'commit_timestamp'],
  ])('TD4: the commit %j is 422', async (body, field) => {
    const answer = await post(`${RUNS}/${await posted()}/associate-commit`, body)
    expect(answer.status).toBe(422)
    expect(answer.body).toMatchObject({ detail: [{ loc: ['body', field] }] })
  })

  test('a commit for an unknown run is 404', async () => {
    const commit = { commit_hash: 'abcdef1', commit_source: 'manual' }
    expect((await post(`${RUNS}/${newId()}/associate-commit`, commit)).status).toBe(404)
  })

  test('TD2: without a repository, a commit or a known host there is no URL', async () => {
    for (const fields of [{}, { git_repo: 'git@example.com:o/n.git', git_commit_hash: 'abcdef1' }]) {
      const id = await posted(fields)
      expect((await get(`${RUNS}/${id}/commit-url`)).body).toEqual({ commit_url: null })
      expect((await get(`${RUNS}/${id}/repo-url`)).body).toEqual({ repo_url: null })
    }
  })
}
