import { safeText } from './safe-text.ts'
import type { Terminal } from './terminal.ts'
import { countText } from './words.ts'

export interface Finding {
  readonly name: string
  readonly status: 'ok' | 'warning' | 'problem'
  readonly message: string
  /** What to do about it. */
  readonly advice?: string
}

export function warning(name: string, message: string, advice: string): Finding {
  return { name, status: 'warning', message, advice }
}

export function problem(name: string, message: string, advice: string): Finding {
  return { name, status: 'problem', message, advice }
}

/** What was found, in the order in which it was looked at. */
export class Report {
  readonly findings: Finding[] = []

  add(finding: Finding): void {
    this.findings.push(finding)
  }

  /** Warnings are no reason to wake somebody. */
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
      bold(problems === 0 ? 'Nothing is wrong.' : `${countText(problems, 'problem')}. Nothing was changed.`),
    )
  }
}
