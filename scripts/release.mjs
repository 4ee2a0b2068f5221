// Publishes the version in package.json. `npm run release -- --dry-run` does everything except publishing and tagging.
//
// A release is made from a clean checkout of main whose CHANGELOG.md has a dated section for the version. `.ci/run` must pass on
// that commit in a clone of its own. The package is published with provenance, so that users can check which commit and which
// build it came from. Only a CI can state provenance, so a real release runs in the workflow "Release".

import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const isDryRun = process.argv.includes('--dry-run')
const root = fileURLToPath(new URL('..', import.meta.url))
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const { version } = manifest

const problems = [
  ...problemsOfManifest(),
  ...problemsOfChangelog(),
  ...problemsOfCheckout(),
  ...problemsOfMachine(),
]
if (problems.length > 0) {
  for (const problem of problems) console.error(`release: ${problem}`)
  process.exit(1)
}

const clone = mkdtempSync(join(tmpdir(), 'annals-release-'))
try {
  run('git', ['clone', '--quiet', root, clone])
  run('bash', ['.ci/run'], clone)
  const publish = ['publish', '--provenance', '--access', 'public']
  run('npm', isDryRun ? [...publish, '--dry-run'] : publish, clone)
  if (!isDryRun) run('git', ['tag', '--annotate', `v${version}`, '--message', `annals ${version}`])
} finally {
  rmSync(clone, { recursive: true, force: true })
}
console.log(
  isDryRun ? `annals ${version} could be released` : `released annals ${version}; push the tag v${version}`,
)

function problemsOfManifest() {
  const addresses = [manifest.repository?.url, manifest.homepage, manifest.bugs?.url]
  return addresses.some(address => address === undefined || address.includes('example.invalid'))
    ? ['package.json has no public address yet: set repository, homepage and bugs']
    : []
}

function problemsOfChangelog() {
  const heading = new RegExp(`^## ${version.replaceAll('.', '\\.')} — \\d{4}-\\d{2}-\\d{2}$`, 'm')
  return heading.test(readFileSync(join(root, 'CHANGELOG.md'), 'utf8'))
    ? []
    : [`CHANGELOG.md has no section "## ${version} — YYYY-MM-DD"`]
}

function problemsOfCheckout() {
  const problems = []
  if (output('git', ['status', '--porcelain']) !== '') problems.push('the checkout has uncommitted changes')
  const branch = output('git', ['rev-parse', '--abbrev-ref', 'HEAD'])
  if (branch !== 'main') problems.push(`a release is made from main, not from ${branch}`)
  if (output('git', ['tag', '--list', `v${version}`]) !== '') problems.push(`v${version} is released already`)
  return problems
}

function problemsOfMachine() {
  return isDryRun || process.env.GITHUB_ACTIONS === 'true'
    ? []
    : ['npm states provenance only for packages that a CI publishes: run the workflow "Release"']
}

function output(command, args) {
  return execFileSync(command, args, { cwd: root, encoding: 'utf8' }).trim()
}

function run(command, args, cwd = root) {
  execFileSync(command, args, { cwd, stdio: 'inherit' })
}
