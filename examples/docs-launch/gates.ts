import { basename } from 'node:path'
import { defineGate } from 'annals/launch'
import { linksOf, rendered, titleOf } from './pages.ts'

export const links = defineGate<'BROKEN_LINK'>({
  run: ({ artifacts }) => {
    const pages = artifacts.names('pages/')
    const known = new Set(pages.map(name => basename(name)))
    return pages.flatMap(path =>
      linksOf(artifacts.readText(path))
        .filter(({ target }) => !known.has(target))
        .map(({ target, line }) => ({
          severity: 'error' as const,
          error_code: 'BROKEN_LINK' as const,
          message: `${path} links to ${target}, which does not exist`,
          location: { path, line },
          suggested_fix: target,
        })),
    )
  },
})

export const frontMatter = defineGate<'MISSING_TITLE'>({
  run: ({ artifacts }) =>
    artifacts
      .names('pages/')
      .filter(path => titleOf(artifacts.readText(path)) === undefined)
      .map(path => ({
        severity: 'blocker' as const,
        error_code: 'MISSING_TITLE' as const,
        message: `${path} has no title`,
        location: { path, line: 1 },
      })),
})

export const build = defineGate<'EMPTY_PAGE'>({
  timeoutMs: 10_000,
  run: ({ artifacts }) =>
    artifacts
      .names('pages/')
      .filter(path => !rendered(artifacts.readText(path)).includes('<h1>'))
      .map(path => ({
        severity: 'error' as const,
        error_code: 'EMPTY_PAGE' as const,
        message: `${path} renders to a page without a heading`,
        location: { path },
      })),
})
