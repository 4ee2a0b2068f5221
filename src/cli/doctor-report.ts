import { countText } from '../core/vocabulary.ts'
import { safeText } from './safe-text.ts'
import type { Terminal } from './terminal.ts'

interface Finding {
  readonly name: string
  readonly status: 'ok' | 'warning' | 'problem'
  readonly message: string
  /** What to do about it. */
  readonly advice?: string
}

/** Findings, in the order of the examination. */
export class Report {
  readonly findings: Finding[] = []

  ok(name: string, message: string): void {
    this.findings.push({ name, status: 'ok', message })
  }

  warn(name: string, message: string, advice: string): void {
    this.findings.push({ name, status: 'warning', message, advice })
  }

  fail(name: string, message: string, advice: string): void {
    this.findings.push({ name, status: 'problem', message, advice })
  }

  /** Whether there are no problems; warnings do not count. */
  get isOk(): boolean {
    return this.findings.every(({ status }) => status !== 'problem')
  }

  async print(terminal: Terminal): Promise<void> {
    const { green, yellow, red, bold } = terminal.colors
    const signs = { ok: green('ok     '), warning: yellow('warning'), problem: red('PROBLEM') }
    for (const { status, message, advice } of this.findings) {
      await terminal.line(`${signs[status]}  ${safeText(message)}`)
      if (advice !== undefined) await terminal.line(`         ${safeText(advice)}`)
    }
    const problems = this.findings.filter(({ status }) => status === 'problem').length
    await terminal.line(
      bold(problems === 0 ? 'No problems.' : `${countText(problems, 'problem')}. Nothing was changed.`),
    )
  }
}
