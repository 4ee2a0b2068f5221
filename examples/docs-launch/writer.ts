import { type ChatBody, type FakeOpenAi, openFakeOpenAi } from 'annals/launch'

/**
 * An endpoint on this machine that stands in for a model: it always writes the
 * same, and makes the mistakes that models make. It forgets the title of one
 * page, and links to pages that nobody planned.
 */
export function openWriter(): Promise<FakeOpenAi> {
  return openFakeOpenAi({ reply: pageFor })
}

/** One that says no, and will say no again. */
export function openRefusingWriter(): Promise<FakeOpenAi> {
  return openFakeOpenAi({
    faults: () => ({ status: 400, message: 'the model does not write documentation' }),
  })
}

function pageFor({ messages }: ChatBody): string {
  const { section, functions } = JSON.parse(String(messages.at(-1)?.['content'])) as {
    section: string
    functions: readonly { name: string; summary: string }[]
  }
  const title = section === 'queue' ? '' : `---\ntitle: ${section}\n---\n`
  const list = functions.map(({ name, summary }) => `- \`${name}\`: ${summary}`).join('\n')
  const link = section === 'stack' ? '\nSee also [the tutorial](tutorial.md).\n' : ''
  return `${title}# ${section}\n\n${list}\n${link}`
}
