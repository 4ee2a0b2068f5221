import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, test } from 'vitest'
import { ProgramHost } from './program-host.ts'

/**
 * Checks the documentation. Every `js` block runs as a program of its own, in an empty folder, against the built package.
 * Links lead to files, and the commands that the pages name exist.
 */
const ROOT = dirname(dirname(fileURLToPath(import.meta.url)))

interface Sample {
  readonly file: string
  readonly line: number
  readonly code: string
}

function markdownFiles(): string[] {
  const docs = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
  const all = [
    'README.md',
    'ARCHITECTURE.md',
    'CONTRIBUTING.md',
    'SECURITY.md',
    'CHANGELOG.md',
    'bench/README.md',
    ...docs.map(name => join('docs', name)),
  ]
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

/** The output that the comment after each `console.log` promises. */
function expectedOutput(code: string): string[] {
  return [...code.matchAll(/^console\.log\(.*\) \/\/ (.*)$/gm)].map(match => match[1].replaceAll("'", ''))
}

// The folder is inside the package, so that `import 'annals'` resolves to the package itself, as it would after an install.
mkdirSync(join(ROOT, 'temp'), { recursive: true })
const folder = mkdtempSync(join(ROOT, 'temp', 'docs-'))
const host = new ProgramHost()
afterAll(() => {
  host.stop()
  rmSync(folder, { recursive: true, force: true })
})

/** Writes a sample to a folder of its own, and returns its path. */
function written(sample: Sample, name: string): string {
  const cwd = join(folder, name)
  mkdirSync(cwd)
  const program = join(cwd, 'sample.mjs')
  // Samples pretend to work for a second. The test need not wait for that.
  writeFileSync(program, sample.code.replaceAll('sleep(1_000)', 'sleep(1)'))
  return program
}

describe('the documentation', () => {
  const samples = markdownFiles().flatMap(samplesOf)

  test('has code samples', () => {
    expect(samples.length).toBeGreaterThan(2)
  })

  for (const [index, sample] of samples.entries()) {
    test(`${relative('.', sample.file)}:${sample.line} runs and prints the documented output`, async () => {
      const program = written(sample, `sample-${index}`)
      const cwd = dirname(program)
      const printed = execFileSync(process.execPath, [program], { cwd, encoding: 'utf8', timeout: 30_000 })
      const output = printed.replaceAll("'", '')
      for (const line of expectedOutput(sample.code)) {
        expect(output.replace(/\s+/g, ' ')).toContain(line.replace(/\s+/g, ' '))
      }
      // A sample must also succeed on the data that its first run left behind.
      const again = await host.run({ program, args: [], cwd, env: process.env })
      expect(again, again.stderr).toMatchObject({ code: 0 })
    }, 60_000)
  }
})

/** The relative links of a page, as paths from the root of the repository. */
function linksOf(file: string): string[] {
  const text = readFileSync(join(ROOT, file), 'utf8').replace(/^```[\s\S]*?^```$/gm, '')
  return [...text.matchAll(/\]\((?!https?:|#)([^)#\s]+)/g)].map(([, link]) => join(dirname(file), link ?? ''))
}

test('every link in the documentation leads to a file', () => {
  // A test of its own keeps the conformance page up to date.
  const pages = markdownFiles().filter(file => !file.endsWith('conformance.md'))
  const missing = pages.flatMap(file =>
    linksOf(file)
      .filter(link => !existsSync(join(ROOT, link)))
      .map(link => `${file} links to ${link}`),
  )
  expect(missing).toEqual([])
})

test('the README and the index link every guide, and the index links every decision', () => {
  const pagesIn = (folder: string): string[] =>
    readdirSync(join(ROOT, folder)).map(name => join(folder, name))
  const guides = pagesIn('docs/guides')
  expect(guides.length).toBeGreaterThan(5)
  expect(linksOf('README.md')).toEqual(expect.arrayContaining(guides))
  expect(linksOf('docs/README.md')).toEqual(expect.arrayContaining([...guides, ...pagesIn('docs/decisions')]))
})

interface Traced {
  readonly title: string
  readonly calls: readonly { readonly file: string; readonly name: string }[]
}

/** The tables of functions in ARCHITECTURE.md. */
function traces(): Traced[] {
  const text = readFileSync(join(ROOT, 'ARCHITECTURE.md'), 'utf8')
  const sections = /^## Traces$([\s\S]*?)^## /m.exec(text)?.[1]?.split(/^### /m).slice(1) ?? []
  return sections.map(section => ({
    title: section.split('\n')[0] ?? '',
    calls: [...section.matchAll(/^\| `(src\/\S+)` \| `(?:\w+\.)?(\w+)` \|/gm)].map(
      ([, file = '', name = '']) => ({ file, name }),
    ),
  }))
}

test('each trace in ARCHITECTURE.md names at most ten functions that exist, and enters no layer twice', () => {
  expect(traces()).toHaveLength(5)
  for (const { title, calls } of traces()) {
    expect(calls.length, title).toBeGreaterThan(3)
    expect(calls.length, title).toBeLessThanOrEqual(10)
    for (const { file, name } of calls) {
      expect(readFileSync(join(ROOT, file), 'utf8'), `${title}: ${file}`).toMatch(
        new RegExp(`\\b${name}(<.*>)?\\(`),
      )
    }
    const layers = calls.map(({ file }) => dirname(file)).filter((layer, i, all) => layer !== all[i - 1])
    expect(layers, title).toEqual([...new Set(layers)])
  }
})

test('ARCHITECTURE.md names only paths that exist, and every folder of src', () => {
  const text = readFileSync(join(ROOT, 'ARCHITECTURE.md'), 'utf8')
  const paths = [...text.matchAll(/`((?:src|test|docs|bench|examples)(?:\/[\w./-]+)?)`/g)].map(
    match => match[1] ?? '',
  )
  expect(paths.filter(path => !existsSync(join(ROOT, path)))).toEqual([])
  const folders = readdirSync(join(ROOT, 'src'), { withFileTypes: true })
    .filter(entry => entry.isDirectory())
    .map(({ name }) => `src/${name}`)
  expect(paths).toEqual(expect.arrayContaining(folders))
  // A row of the code map names files of its folder.
  for (const [, folder = '', row = ''] of text.matchAll(/^\| `(src[\w/]*)` \| (.*) \|$/gm)) {
    if (folder.endsWith('.ts')) continue
    const files = [...row.matchAll(/`([\w-]+\.ts)`/g)].map(match => match[1] ?? '')
    expect(files.filter(file => !existsSync(join(ROOT, folder, file)))).toEqual([])
  }
  expect(text.split('\n').length).toBeLessThanOrEqual(301)
})

test('every npm script that the documentation names exists', () => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    readonly scripts: Readonly<Record<string, string>>
  }
  const named = markdownFiles().flatMap(file =>
    [...readFileSync(join(ROOT, file), 'utf8').matchAll(/\bnpm (?:run ([\w:]+)|(start|test)\b)/g)].map(
      match => match[1] ?? match[2] ?? '',
    ),
  )
  expect(named).toContain('demo')
  expect(Object.keys(scripts)).toEqual(expect.arrayContaining(named))
})

test('every file that the README links to is in the package', () => {
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
