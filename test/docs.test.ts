import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, test } from 'vitest'

/** Every `js` block of the documentation runs as a program of its own, in an empty folder, against the built package. */
const ROOT = dirname(dirname(fileURLToPath(import.meta.url)))

interface Sample {
  readonly file: string
  readonly line: number
  readonly code: string
}

function markdownFiles(): string[] {
  const docs = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
  const all = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', ...docs.map(name => join('docs', name))]
  return all.filter(name => name.endsWith('.md') && !name.startsWith(join('docs', 'api')))
}

function samplesOf(file: string): Sample[] {
  const text = readFileSync(join(ROOT, file), 'utf8')
  return [...text.matchAll(/^```js\n([\s\S]*?)^```$/gm)].map(match => ({
    file,
    line: text.slice(0, match.index).split('\n').length,
    code: match[1],
  }))
}

/** What a comment behind a `console.log` says that it prints. */
function expectedOutput(code: string): string[] {
  return [...code.matchAll(/^console\.log\(.*\) \/\/ (.*)$/gm)].map(match => match[1].replaceAll("'", ''))
}

// Inside the package, so that `import 'annals'` finds it by its own name, as an installed one would be found.
mkdirSync(join(ROOT, 'temp'), { recursive: true })
const folder = mkdtempSync(join(ROOT, 'temp', 'docs-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

function run(sample: Sample, name: string): string {
  const cwd = join(folder, name)
  mkdirSync(cwd, { recursive: true })
  const program = join(cwd, 'sample.mjs')
  // Nobody waits here for work that a sample only makes believe it does.
  writeFileSync(program, sample.code.replaceAll('sleep(1_000)', 'sleep(1)'))
  return execFileSync(process.execPath, [program], { cwd, encoding: 'utf8', timeout: 30_000 })
}

describe('the documentation', () => {
  const samples = markdownFiles().flatMap(samplesOf)

  test('has samples', () => {
    expect(samples.length).toBeGreaterThan(2)
  })

  for (const [index, sample] of samples.entries()) {
    test(`${relative('.', sample.file)}:${sample.line} runs and prints what it says`, () => {
      const output = run(sample, `sample-${index}`).replaceAll("'", '')
      for (const line of expectedOutput(sample.code)) {
        expect(output.replace(/\s+/g, ' ')).toContain(line.replace(/\s+/g, ' '))
      }
      // A program that goes on where it was does so: the second time nothing is different.
      run(sample, `sample-${index}`)
    }, 60_000)
  }
})

test('what the README links to is in the package', () => {
  const args = ['pack', '--dry-run', '--json', '--ignore-scripts']
  const packed = JSON.parse(
    execFileSync('npm', args, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }),
  )
  const files: string[] = packed[0].files.map(({ path }: { readonly path: string }) => path)
  const links = [...readFileSync(join(ROOT, 'README.md'), 'utf8').matchAll(/\]\((?!https?:|#)([^)#]+)/g)]
  expect(links.length).toBeGreaterThan(5)
  for (const [, link] of links) {
    expect(
      files.some(file => file === link || file.startsWith(`${link}/`)),
      link,
    ).toBe(true)
  }
})
