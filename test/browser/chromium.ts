import { execFileSync } from 'node:child_process'
import chromium from '@sparticuz/chromium'
import { type Browser, chromium as driver } from 'playwright-core'
import { skipBecause } from '../skipping.ts'

/** A real browser: the one of `ANNALS_TEST_CHROMIUM`, or of npm. Undefined if the tests that need it are skipped. */
export async function openChromium(): Promise<Browser | undefined> {
  try {
    const executablePath = process.env['ANNALS_TEST_CHROMIUM'] ?? (await chromium.executablePath())
    checkLibraries(executablePath)
    // Of its own options only those that it needs where it can't have a sandbox: a test must not be laxer than a user's browser.
    const args = [
      '--no-sandbox',
      '--disable-setuid-sandbox',
      '--no-zygote',
      '--disable-gpu',
      '--disable-dev-shm-usage',
    ]
    return await driver.launch({ executablePath, args, headless: true })
  } catch (error) {
    skipBecause(`the browser does not start: ${error}`)
    return undefined
  }
}

/** Not all machines have the libraries that npm does not bring. */
function checkLibraries(executable: string): void {
  const needed = execFileSync('ldd', [executable], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
  const missing = missingLibraries(needed)
  if (missing.length === 0) return
  throw new Error(
    `it needs system libraries that are missing: ${missing.join(', ')}. On Debian and Ubuntu, apt-get install libnss3 libnspr4 libexpat1 brings them`,
  )
}

/** Of what `ldd` prints. */
function missingLibraries(needed: string): string[] {
  return [...needed.matchAll(/^\s*(\S+) => not found$/gm)].map(match => match[1])
}
