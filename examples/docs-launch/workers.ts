import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { defineWorker, type FixInput } from 'annals/launch'
import { git } from './git.ts'
import { withoutLink, withTitle } from './pages.ts'

/**
 * A worker may run again after a crash, with half of its work done, so every worker is idempotent. A git process of a killed
 * attempt may still be running, so each attempt has its own folder.
 */

export const clone = defineWorker({
  timeoutMs: 60_000,
  run: async ({ repository }: { repository: string }, { folder, signal, attempt }) => {
    const fresh = join(folder, `clone-${attempt}`)
    const worktree = join(folder, 'worktree')
    await git(folder, ['clone', '--quiet', repository, fresh], signal)
    rmSync(worktree, { recursive: true, force: true })
    renameSync(fresh, worktree)
    return { commit: await git(worktree, ['rev-parse', 'HEAD'], signal) }
  },
})

export const ingest = defineWorker({
  run: async (_: { commit: string }, { folder, artifacts }) => {
    const source = join(folder, 'worktree', 'src')
    const files = readdirSync(source)
      .sort()
      .map(name => ({
        name,
        sha256: createHash('sha256')
          .update(readFileSync(join(source, name)))
          .digest('hex'),
      }))
    await artifacts.write('inventory.json', JSON.stringify(files), { schemaId: 'docs:inventory' })
    return { modules: files.map(({ name }) => basename(name, '.js')) }
  },
})

export interface Facts {
  readonly module: string
  readonly functions: readonly { readonly name: string; readonly summary: string }[]
}

export const collectFacts = defineWorker({
  run: async ({ module }: { module: string }, { folder, artifacts }): Promise<{ functions: number }> => {
    const text = readFileSync(join(folder, 'worktree', 'src', `${module}.js`), 'utf8')
    const functions = [...text.matchAll(/\/\*\* (.*?) \*\/\nexport function (\w+)/g)].map(match => ({
      name: match[2],
      summary: match[1],
    }))
    const facts: Facts = { module, functions }
    await artifacts.write(`facts/${module}.json`, JSON.stringify(facts), { schemaId: 'docs:facts' })
    return { functions: functions.length }
  },
})

export const plan = defineWorker({
  run: async (_: undefined, { artifacts }) => {
    const sections = artifacts.names('facts/').map(name => basename(name, '.json'))
    await artifacts.write('plan.json', JSON.stringify({ sections }), { schemaId: 'docs:plan' })
    return { sections }
  },
})

const PROMPT = `Write a page of documentation in Markdown, and nothing else.
It begins with a front matter that has a title, then a heading, then a list of the functions.`

export const draft = defineWorker({
  attemptsMax: 3,
  backoffMs: 10,
  concurrency: 2,
  run: async ({ section }: { section: string }, { artifacts, config, llm }) => {
    const { functions } = artifacts.readJson(`facts/${section}.json`) as Facts
    const { content } = await llm.chat({
      model: String(config['model']),
      messages: [
        { role: 'system', content: PROMPT },
        { role: 'user', content: JSON.stringify({ section, functions }) },
      ],
    })
    await artifacts.write(`drafts/${section}.md`, content, { schemaId: 'text/markdown' })
  },
})

export const link = defineWorker({
  run: async ({ section, others }: { section: string; others: readonly string[] }, { artifacts }) => {
    const page = artifacts.readText(`drafts/${section}.md`)
    const related = others.map(other => `[${other}](${other}.md)`).join(', ')
    await artifacts.write(`pages/${section}.md`, `${page}\nRelated: ${related}.\n`, {
      schemaId: 'text/markdown',
    })
  },
})

export const mend = defineWorker({
  run: async ({ issue }: FixInput, { artifacts }) => {
    const name = issue.location?.path ?? ''
    const page = artifacts.readText(name)
    const mended =
      issue.error_code === 'MISSING_TITLE'
        ? withTitle(page, basename(name, '.md'))
        : withoutLink(page, issue.suggested_fix ?? '')
    await artifacts.write(name, mended, { schemaId: 'text/markdown' })
  },
})

export const publish = defineWorker({
  timeoutMs: 60_000,
  run: async (
    { repository, branch }: { repository: string; branch: string },
    { folder, artifacts, signal, attempt },
  ) => {
    const place = join(folder, `publish-${attempt}`)
    await git(folder, ['clone', '--quiet', repository, place], signal)
    await git(place, ['checkout', '--quiet', '-B', branch, 'origin/main'], signal)
    const docs = join(place, 'docs')
    mkdirSync(docs, { recursive: true })
    for (const name of artifacts.names('pages/')) {
      writeFileSync(join(docs, basename(name)), artifacts.read(name))
    }
    await git(place, ['add', '--all', 'docs'], signal)
    await git(place, ['commit', '--quiet', '-m', 'Documentation of every module'], signal)
    await git(place, ['push', '--quiet', '--force', 'origin', branch], signal)
    const commit = await git(place, ['rev-parse', 'HEAD'], signal)
    rmSync(place, { recursive: true, force: true })
    return { commit }
  },
})
