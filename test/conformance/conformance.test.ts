import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { LAUNCH_RULES } from './launch-rules.ts'
import { LEDGER_RULES } from './ledger-rules.ts'
import { TELEMETRY_RULES } from './telemetry-rules.ts'

/**
 * Maps the rules of the ledger, launch and telemetry contracts to the tests that prove them. The map is read from the
 * titles of the tests and written to docs/conformance.md. A rule without a test fails, and so does a page that is out of
 * date. `ANNALS_UPDATE=1` writes the page.
 */

interface File {
  readonly path: string
  readonly text: string
}

interface Proof {
  readonly path: string
  readonly rules: readonly string[]
  readonly title: string
}

/** A title is the first argument of a call that declares a test: `test(…)`, `test.each(…)(…)`, `suite.holds(…)`, `suite.each(…)`. */
const TITLE =
  /(?:\b(?:test|it|holds|each)|\))\(\s*(['"`])((?:[LN]D?|TD)\d+(?:, (?:[LN]D?|TD)\d+)*): (.*?)\1/gs

function proofsIn({ path, text }: File): Proof[] {
  return [...text.matchAll(TITLE)].map(([, , rules, title]) => ({ path, rules: rules.split(', '), title }))
}

type Rules = Readonly<Record<string, string>>

/** Lists rules without a test, and rule numbers in titles that do not exist. */
function gapsOf(rules: Rules, proofs: readonly Proof[]): string[] {
  const proven = new Set(proofs.flatMap(proof => proof.rules))
  return [
    ...Object.keys(rules)
      .filter(rule => !proven.has(rule))
      .map(rule => `${rule} has no test`),
    ...[...proven].filter(rule => !Object.hasOwn(rules, rule)).map(rule => `there is no rule ${rule}`),
  ]
}

const ALL_RULES: Rules = { ...LEDGER_RULES, ...LAUNCH_RULES, ...TELEMETRY_RULES }

function pageOf(proofs: readonly Proof[]): string {
  return `# Conformance

This page lists the rules of the contracts and the tests that prove each of them. It is generated from the titles of the
tests (\`ANNALS_UPDATE=1 npx vitest run test/conformance\`); the tests fail if it is out of date or if a rule has no test. A
title with \`%s\` stands for one test per row of a table. The tests in \`src/testing/ledger-suite\` run on every engine.

## The ledger

${tableOf(LEDGER_RULES, proofs)}

## Launches

${tableOf(LAUNCH_RULES, proofs)}

## The telemetry service

${tableOf(TELEMETRY_RULES, proofs)}
`
}

function tableOf(rules: Rules, proofs: readonly Proof[]): string {
  const rows = Object.entries(rules).map(([rule, wording]) => {
    const own = proofs.filter(proof => proof.rules.includes(rule))
    const files = [...new Set(own.map(({ path }) => path))].map(path => {
      const titles = own.filter(proof => proof.path === path).map(({ title }) => `· ${cell(title)}`)
      return [`[${path}](../${path})`, ...titles].join('<br>')
    })
    return `| ${rule} | ${cell(wording)} | ${files.join('<br>')} |`
  })
  return ['| Rule | Requirement | Tests |', '|---|---|---|', ...rows].join('\n')
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('\n', ' ')
}

const root = fileURLToPath(new URL('../..', import.meta.url))
const PAGE = join(root, 'docs/conformance.md')

/** All files that may contain titles. This folder contains only examples of titles. */
function sources(): File[] {
  return ['src', 'test']
    .flatMap(folder =>
      readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map(path => `${folder}/${path}`),
    )
    .filter(path => path.endsWith('.ts') && !path.startsWith('test/conformance/'))
    .sort()
    .map(path => ({ path, text: readFileSync(join(root, path), 'utf8') }))
}

describe('conformance', () => {
  const proofs = sources().flatMap(proofsIn)

  test('there are 32 rules and 18 decisions of the ledger, 11 and 13 of launches, 8 of telemetry', () => {
    const numbers = (letters: string, count: number): string[] =>
      Array.from({ length: count }, (_, i) => `${letters}${i + 1}`)
    expect(Object.keys(LEDGER_RULES)).toEqual([...numbers('L', 32), ...numbers('LD', 18)])
    expect(Object.keys(LAUNCH_RULES)).toEqual([...numbers('N', 11), ...numbers('ND', 13)])
    expect(Object.keys(TELEMETRY_RULES)).toEqual(numbers('TD', 8))
  })

  test('every rule has a test, and every rule number in a title exists', () => {
    expect(gapsOf(ALL_RULES, proofs)).toEqual([])
  })

  test('docs/conformance.md is up to date', () => {
    const page = pageOf(proofs)
    if (process.env['ANNALS_UPDATE'] === '1') writeFileSync(PAGE, page)
    expect(readFileSync(PAGE, 'utf8')).toBe(page)
  })
})

describe('the check fails', () => {
  const proofs = sources().flatMap(proofsIn)

  test.each(Object.keys(ALL_RULES))('without the tests of %s', rule => {
    const others = proofs.filter(({ rules }) => !rules.includes(rule))
    expect(gapsOf(ALL_RULES, others)).toContain(`${rule} has no test`)
    expect(pageOf(others)).not.toBe(pageOf(proofs))
  })

  test('at a rule number that does not exist', () => {
    const planted = proofsIn({ path: 'src/a.test.ts', text: "test('L4, LD99: x', () => {})" })
    expect(gapsOf(ALL_RULES, [...proofs, ...planted])).toEqual(['there is no rule LD99'])
  })

  test.each([
    ["test('L4: a', () => {})", ['L4'], 'a'],
    ["test('N4, ND11: a', () => {})", ['N4', 'ND11'], 'a'],
    ["test('N10, TD6: a', () => {})", ['N10', 'TD6'], 'a'],
    ["test('L4, LD11: a | b', () => {})", ['L4', 'LD11'], 'a | b'],
    ['suite.holds(\n    `L5: many at once`,', ['L5'], 'many at once'],
    ["test.each(ROWS)('LD4: %s', row => {})", ['LD4'], '%s'],
    ["suite.each(\n  'L12: without %s',", ['L12'], 'without %s'],
    ['it("L9: it\'s so", () => {})', ['L9'], "it's so"],
  ])('a title is found in %j', (text, rules, title) => {
    expect(proofsIn({ path: 'a.ts', text })).toEqual([{ path: 'a.ts', rules, title }])
  })

  test.each([
    "describe('L4: a', () => {})",
    "throw new Error('L4: a')",
    '/** L4: a */',
    "test('4: a', () => {})",
    "test('says L4: a', () => {})",
    "test('T4: a', () => {})",
    "const title = 'L4: a'",
  ])('nothing is proven by %j', text => {
    expect(proofsIn({ path: 'a.ts', text })).toEqual([])
  })
})
