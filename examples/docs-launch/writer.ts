import { type ChatBody, type FakeOpenAi, openFakeOpenAi } from 'annals/launch'

/**
 * Starts a fake model on this machine. It always writes the same pages and makes mistakes that models make: one page has no
 * title, and one links to a page that does not exist.
 */
export function openWriter(): Promise<FakeOpenAi> {
  return openFakeOpenAi({ reply: pageFor })
}

/** Starts a fake model that refuses every request. */
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
