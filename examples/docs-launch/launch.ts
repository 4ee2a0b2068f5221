import { defineLaunch, type Launch } from 'annals/launch'
import { build, frontMatter, links } from './gates.ts'
import { clone, collectFacts, draft, ingest, link, mend, plan, publish } from './workers.ts'

const BRANCH = 'docs-launch'

/** Documents a repository: from its clone to the branch of a pull request. */
export const docsLaunch: Launch = defineLaunch({
  name: 'docs',
  version: '1',
  workers: { clone, ingest, collectFacts, plan, draft, link, mend, publish },
  gates: { links, frontMatter, build },
  fixer: 'mend',
  concurrency: 3,
  nodes: [
    {
      name: 'clone',
      state: 'CREATED',
      run: async ctx => {
        const repository = String(ctx.config['repository'])
        const { commit } = await ctx.work('clone', { input: { repository } })
        await ctx.inputsCloned([{ name: 'repository', ref: commit }])
        return 'CLONED_INPUTS'
      },
    },
    {
      name: 'ingest',
      state: 'CLONED_INPUTS',
      run: async ctx => {
        const { commit } = await ctx.work('clone', {
          input: { repository: String(ctx.config['repository']) },
        })
        await ctx.work('ingest', { input: { commit } })
        return 'INGESTED'
      },
    },
    {
      name: 'facts',
      state: 'INGESTED',
      run: async ctx => {
        const inventory = ctx.artifacts.readJson('inventory.json') as readonly { name: string }[]
        const modules = inventory.map(({ name }) => name.replace('.js', ''))
        await Promise.all(
          modules.map(module =>
            ctx.work('collectFacts', { scope: module, input: { module }, inputs: ['inventory.json'] }),
          ),
        )
        return 'FACTS_READY'
      },
    },
    {
      name: 'plan',
      state: 'FACTS_READY',
      run: async ctx => {
        const { sections } = await ctx.work('plan', { inputs: ctx.artifacts.names('facts/') })
        for (const section of sections) await ctx.section(section, 'OUTLINED')
        return 'PLAN_READY'
      },
    },
    { name: 'prepare', state: 'PLAN_READY', run: async () => 'DRAFTING' },
    {
      name: 'draft',
      state: 'DRAFTING',
      run: async ctx => {
        const { sections } = ctx.artifacts.readJson('plan.json') as { sections: readonly string[] }
        await Promise.all(
          sections.map(async section => {
            await ctx.work('draft', { scope: section, input: { section }, inputs: [`facts/${section}.json`] })
            await ctx.section(section, 'DRAFTED')
          }),
        )
        return 'DRAFT_READY'
      },
    },
    { name: 'collect', state: 'DRAFT_READY', run: async () => 'LINKING' },
    {
      name: 'link',
      state: 'LINKING',
      run: async ctx => {
        const { sections } = ctx.artifacts.readJson('plan.json') as { sections: readonly string[] }
        for (const section of sections) {
          const others = sections.filter(other => other !== section)
          await ctx.work('link', {
            scope: section,
            input: { section, others },
            inputs: [`drafts/${section}.md`],
          })
          await ctx.section(section, 'MERGED_IN_WORKTREE')
        }
        return 'VALIDATING'
      },
    },
    {
      name: 'validate',
      state: 'VALIDATING',
      run: async ctx => ((await ctx.validate()).ok ? 'READY_FOR_PR' : 'FIXING'),
    },
    {
      name: 'fix',
      state: 'FIXING',
      run: async ctx => {
        await ctx.fix()
        return 'VALIDATING'
      },
    },
    {
      name: 'publish',
      state: 'READY_FOR_PR',
      run: async ctx => {
        const { commit } = await ctx.work('publish', {
          input: { repository: String(ctx.config['repository']), branch: BRANCH },
          inputs: ctx.artifacts.names('pages/'),
        })
        await ctx.prOpened({ branch: BRANCH, commit_sha: commit })
        return 'PR_OPENED'
      },
    },
    {
      name: 'finish',
      state: 'PR_OPENED',
      run: async ctx => {
        const { sections } = ctx.artifacts.readJson('plan.json') as { sections: readonly string[] }
        for (const section of sections) await ctx.section(section, 'DONE')
        return 'DONE'
      },
    },
  ],
})
