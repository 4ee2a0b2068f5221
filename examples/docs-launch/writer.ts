import type { LlmClient } from 'annals/launch'

/**
 * Stands in for a model: a function that always writes the same, and makes the
 * mistakes that models make. It forgets the title of one page, and links to
 * pages that nobody planned.
 */
export function localWriter(): LlmClient {
  return {
    chat: async ({ messages }) => {
      const { section, functions } = JSON.parse(messages.at(-1)?.content ?? '{}') as {
        section: string
        functions: readonly { name: string; summary: string }[]
      }
      const title = section === 'queue' ? '' : `---\ntitle: ${section}\n---\n`
      const list = functions.map(({ name, summary }) => `- \`${name}\`: ${summary}`).join('\n')
      const link = section === 'stack' ? '\nSee also [the tutorial](tutorial.md).\n' : ''
      return { content: `${title}# ${section}\n\n${list}\n${link}`, finishReason: 'stop' }
    },
  }
}

/** One that says no, and will say no again. */
export function refusingWriter(): LlmClient {
  return {
    chat: async () => {
      throw Object.assign(new Error('the model does not write documentation'), {
        code: 'REFUSED',
        retryable: false,
      })
    },
  }
}
