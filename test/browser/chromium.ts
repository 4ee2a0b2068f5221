import { execFileSync } from 'node:child_process'
import chromium from '@sparticuz/chromium'
import { type Browser, chromium as driver } from 'playwright-core'
import { skipBecause } from '../skipping.ts'

/**
 * Opens a real browser: that of `ANNALS_TEST_CHROMIUM`, or the one from npm. Returns undefined if the tests that need
 * it are skipped.
 */
export async function openChromium(): Promise<Browser | undefined> {
  try {
    const executablePath = process.env['ANNALS_TEST_CHROMIUM'] ?? (await chromium.executablePath())
    checkLibraries(executablePath)
    // Only the options that a browser without a sandbox needs. More of them could make it less strict than a user's browser.
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

/** Throws if system libraries are missing, which npm does not install. */
function checkLibraries(executable: string): void {
  const needed = execFileSync('ldd', [executable], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
  const missing = missingLibraries(needed)
  if (missing.length === 0) return
  throw new Error(
    `it needs system libraries that are missing: ${missing.join(', ')}. On Debian and Ubuntu, apt-get install libnss3 libnspr4 libexpat1 brings them`,
  )
}

/** The missing libraries in the output of `ldd`. */
function missingLibraries(needed: string): string[] {
  return [...needed.matchAll(/^\s*(\S+) => not found$/gm)].map(match => match[1])
}
