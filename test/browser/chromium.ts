import { execFileSync } from 'node:child_process'
import chromium from '@sparticuz/chromium'
import { type Browser, chromium as driver } from 'playwright-core'

/** A real browser from npm; a sentence that says why not, if this machine can't run it. */
export async function openChromium(): Promise<Browser | string> {
  const executablePath = await chromium.executablePath()
  const missing = missingLibraries(executablePath)
  if (missing.length > 0) return `Chromium needs libraries that are not here: ${missing.join(', ')}`
  // Of its own options only those that it needs where it can't have a sandbox: a test must not be laxer than a user's browser.
  const args = [
    '--no-sandbox',
    '--disable-setuid-sandbox',
    '--no-zygote',
    '--disable-gpu',
    '--disable-dev-shm-usage',
  ]
  return driver.launch({ executablePath, args, headless: true })
}

function missingLibraries(executable: string): string[] {
  const needed = execFileSync('ldd', [executable], { encoding: 'utf8' })
  return [...needed.matchAll(/^\s*(\S+) => not found$/gm)].map(match => match[1])
}
