import { isPlainObject } from './json.ts'

/** Stands in place of a secret. */
export const REDACTED = '[redacted]'

/** Shorter keys are not secrets: for local servers people pass words such as `ollama`, which may be in every prompt. */
const KNOWN_SECRET_CHARS_MIN = 8

/** Does not match `x-ratelimit-remaining-tokens`, which is worth keeping. */
const SECRET_HEADER =
  /auth|cookie|token(?!s)|secret|password|credential|session|signature|(^|[_-])key($|[_-])|apikey/i

/** For string members only. A bare `token` is not matched, because `logprobs` consist of them. */
const SECRET_MEMBER =
  /(^|[_-]|[a-z])(api[_-]?key|apikey|secret|secret[_-]?key|password|passwd|passphrase|authorization|credentials?|private[_-]?key|(access|refresh|auth|id|bearer|session)[_-]?token)$/i

/** Well-known forms of keys. A match is replaced; if it has groups, the first stays and the second is replaced. */
const SHAPES: readonly RegExp[] = [
  /-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[^-]|-(?!-)){0,20000}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?/g,
  // OpenAI, Anthropic and similar. Providers echo keys with stars in the middle. Plain words have no digits.
  /(?<![\w-])sk-(?=[A-Za-z_-]{0,200}[0-9*])[A-Za-z0-9_*-]{12,}/g,
  /\b(?:gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,})/g,
  /\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{20,})/g,
  /\b(?:[psr]k_(?:live|test)_[A-Za-z0-9]{16,}|xai-[A-Za-z0-9]{20,}|pplx-[A-Za-z0-9]{20,}|ya29\.[\w-]{20,})/g,
  /(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]{4,})?/g,
  /(\bauthorization\\{0,4}["']?\s{0,4}[:=]\s{0,4}\\{0,4}["']?(?:(?:bearer|basic|token)\s{1,4})?)([^\s"'\\,;]{4,})/gi,
  /(\bbearer\s{1,4})((?=[A-Za-z._~+/=-]{0,200}\d)[\w.~+/=-]{8,})/gi,
  /(\b[a-z][a-z0-9+.-]{0,20}:\/\/)([^\s/:@"']{1,200}:[^\s/@"']{1,200})(?=@)/gi,
  /([?&](?:key|api[_-]?key|access_token|token|sig|signature|secret)=)([^&\s"'#\\]{6,})/gi,
  /((?:api[_-]?key|secret|secret[_-]?key|passwd|password|passphrase|private[_-]?key|(?:access|refresh|auth|session)[_-]?token)\\{0,4}["']?\s{0,4}[:=]\s{0,4}\\{0,4}["'])([^"'\\\s]{4,})/gi,
  /((?:KEY|TOKEN|SECRET|PASSWORD)\s?=\s?)([^\s"'\\]{6,})/g,
]

/**
 * Removes secrets from everything that is written: events, evidence, errors
 * and warnings. It removes the keys of the call, headers and members whose
 * names say that they hold a secret, and texts in the form of well-known keys.
 * Every pattern is bounded, so that a hostile answer can't keep a regular
 * expression busy.
 */
export class Redactor {
  /** The longest first, because one may be part of another. */
  readonly #secrets: readonly string[]
  /** How many secrets were replaced. */
  count = 0

  constructor(secrets: readonly (string | undefined)[] = []) {
    this.#secrets = secrets
      .filter((secret): secret is string => secret !== undefined && secret.length >= KNOWN_SECRET_CHARS_MIN)
      .sort((a, b) => b.length - a.length)
  }

  text(text: string): string {
    let clean = text
    for (const secret of this.#secrets) {
      // Inside JSON or a URL the secret may be escaped.
      for (const form of new Set([secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret)])) {
        if (!clean.includes(form)) continue
        this.count += clean.split(form).length - 1
        clean = clean.replaceAll(form, REDACTED)
      }
    }
    for (const shape of SHAPES) {
      clean = clean.replace(shape, (match: string, ...groups: unknown[]) => {
        const [kept, secret] = typeof groups[1] === 'string' ? [String(groups[0]), groups[1]] : ['', match]
        // Redacting twice changes nothing.
        if (secret.startsWith(REDACTED)) return match
        this.count++
        return `${kept}${REDACTED}`
      })
    }
    return clean
  }

  /** A copy of a JSON value without secrets. The caller has checked its depth. */
  value(value: unknown): unknown {
    if (typeof value === 'string') return this.text(value)
    if (Array.isArray(value)) return value.map(item => this.value(item))
    if (!isPlainObject(value)) return value
    // `fromEntries`, because assigning to `__proto__` would set the prototype.
    return Object.fromEntries(
      Object.entries(value).map(([name, member]) => [this.text(name), this.#member(name, member)]),
    )
  }

  headers(headers: Iterable<readonly [string, string]>): Record<string, string> {
    const clean: [string, string][] = []
    for (const [name, value] of headers) {
      const isSecret = SECRET_HEADER.test(name)
      if (isSecret) this.count++
      clean.push([name, isSecret ? REDACTED : this.text(value)])
    }
    return Object.fromEntries(clean)
  }

  #member(name: string, member: unknown): unknown {
    if (typeof member !== 'string' || member === '' || !SECRET_MEMBER.test(name)) return this.value(member)
    if (member === REDACTED) return member
    this.count++
    return REDACTED
  }
}

/** The secrets in the headers of a request. */
export function secretsIn(headers: Iterable<readonly [string, string]>): string[] {
  const secrets: string[] = []
  for (const [name, value] of headers) {
    if (!SECRET_HEADER.test(name)) continue
    secrets.push(value, value.replace(/^(?:bearer|basic|token)\s+/i, ''))
  }
  return secrets
}

/** A URL without user, password and query. */
export function publicUrl(url: string): string {
  const { origin, pathname } = new URL(url)
  return `${origin}${pathname.replace(/\/+$/, '')}`
}
