/** Functions over the text of a page that workers and gates share. */

const LINK = /\[([^\]]*)\]\(([^)]*)\)/g

export interface Link {
  readonly text: string
  readonly target: string
  readonly line: number
}

export function linksOf(page: string): readonly Link[] {
  return page
    .split('\n')
    .flatMap((line, index) =>
      [...line.matchAll(LINK)].map(match => ({ text: match[1], target: match[2], line: index + 1 })),
    )
}

/** Replaces links to the target by their text. */
export function withoutLink(page: string, target: string): string {
  return page.replace(LINK, (whole, text: string, found: string) => (found === target ? text : whole))
}

export function titleOf(page: string): string | undefined {
  return /^---\ntitle: (.+)\n---\n/.exec(page)?.[1]
}

/** Adds a title unless the page has one, because the worker may run again after it has fixed the page. */
export function withTitle(page: string, title: string): string {
  if (titleOf(page) !== undefined) return page
  return `---\ntitle: ${title}\n---\n${page}`
}

export function rendered(page: string): string {
  const body = page.replace(/^---\n[\s\S]*?\n---\n/, '')
  return body
    .split('\n')
    .filter(line => line !== '')
    .map(line => (line.startsWith('# ') ? `<h1>${line.slice(2)}</h1>` : `<p>${line}</p>`))
    .join('\n')
}
