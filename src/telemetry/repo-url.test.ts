import { describe, expect, test } from 'vitest'
import { commitUrl, repoUrl } from './repo-url.ts'

const GITHUB = 'https://github.com/owner/name'

describe('addresses of repositories', () => {
  test.each([
    ['https://github.com/owner/name', GITHUB],
    ['https://github.com/owner/name.git', GITHUB],
    ['https://github.com/owner/name/', GITHUB],
    ['http://github.com/owner/name', GITHUB],
    ['https://GitHub.com/owner/name.git?x=1#y', GITHUB],
    ['https://me:secret@github.com/owner/name.git', GITHUB],
    ['https://ghp_secret@github.com/owner/name', GITHUB],
    ['https://me:p@ss@github.com/owner/name.git', GITHUB],
    ['me:secret@github.com:owner/name.git', GITHUB],
    ['me:p@ss@github.com:owner/name', GITHUB],
    ['git@github.com:owner/name.git', GITHUB],
    ['github.com:owner/name', GITHUB],
    ['ssh://git@github.com/owner/name.git', GITHUB],
    ['ssh://git@github.com:22/owner/name.git', GITHUB],
    ['git://github.com/owner/name.git', GITHUB],
    ['github.com/owner/name', GITHUB],
    [' https://github.com/owner/name\n', GITHUB],
    ['git@gitlab.com:group/sub/name.git', 'https://gitlab.com/group/sub/name'],
    ['https://bitbucket.org/team/name.git', 'https://bitbucket.org/team/name'],
  ])('TD2: %j is found at %j', (given, expected) => {
    expect(repoUrl(given)).toBe(expected)
  })

  test.each([
    'https://example.com/owner/name',
    'https://github.com.evil.example/owner/name',
    'https://evil.example/github.com/owner/name',
    'https://github.com@evil.example/owner/name',
    'https://me:p@github.com@evil.example/owner/name',
    'git@github.com:x@evil.example:owner/name',
    'git@git.example.com:owner/name.git',
    'https://github.com',
    'https://github.com/owner',
    'https://github.com/owner/../name',
    'https://github.com/owner/name/tree/main',
    'https://github.com/owner/na me',
    'https://github.com/owner/<script>',
    'javascript://github.com/owner/name',
    'file:///github.com/owner/name',
    '/srv/git/name.git',
    '',
  ])('TD2: %j has no URL', given => {
    expect(repoUrl(given)).toBeUndefined()
    expect(commitUrl(given, 'abcdef1')).toBeUndefined()
  })

  test.each([
    ['git@github.com:o/n.git', 'https://github.com/o/n/commit/abcdef1'],
    ['https://u:p@gitlab.com/o/n.git', 'https://gitlab.com/o/n/-/commit/abcdef1'],
    ['https://bitbucket.org/o/n', 'https://bitbucket.org/o/n/commits/abcdef1'],
  ])('TD2: a commit of %j has the URL %j', (given, expected) => {
    expect(commitUrl(given, 'abcdef1')).toBe(expected)
  })

  test.each(['abcdef', 'g'.repeat(7), 'a'.repeat(41), '../../x', undefined])(
    'TD2: the commit hash %j has no URL',
    hash => {
      expect(commitUrl(GITHUB, hash)).toBeUndefined()
    },
  )

  test('without a repository there is no URL', () => {
    expect([repoUrl(undefined), commitUrl(undefined, 'abcdef1')]).toEqual([undefined, undefined])
  })
})
