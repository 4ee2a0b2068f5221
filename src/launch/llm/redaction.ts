import { isPlainObject } from './json.ts'

/**
 * Keeps secrets out of everything that is written down: events, evidence,
 * error messages, warnings. Three nets, one behind the other: the keys of this
 * call, wherever they turn up; headers and members whose name says that they
 * hold a secret; and texts that have the shape of a well-known kind of key.
 *
 * Every pattern is bounded: a hostile answer must not keep a regular
 * expression busy for minutes.
 */

export const REDACTED = '[redacted]'

/** Local servers take any key, so people pass words such as `ollama`: those are no secrets, and may be in every prompt. */
const KNOWN_SECRET_CHARS_MIN = 8

/** Not `x-ratelimit-remaining-tokens`, which is worth keeping. */
const SECRET_HEADER =
  /auth|cookie|token(?!s)|secret|password|credential|session|signature|(^|[_-])key($|[_-])|apikey/i

/** Of texts only: a bare `token` is what `logprobs` are made of, and `max_tokens` is a number. */
const SECRET_MEMBER =
  /(^|[_-]|[a-z])(api[_-]?key|apikey|secret|secret[_-]?key|password|passwd|passphrase|authorization|credentials?|private[_-]?key|(access|refresh|auth|id|bearer|session)[_-]?token)$/i

/** A shape is replaced as a whole; with groups, the first stays and the second goes. */
const SHAPES: readonly RegExp[] = [
  /-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[^-]|-(?!-)){0,20000}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?/g,
  // OpenAI, Anthropic and those who copied them; providers echo them with stars in the middle. A word has no digits.
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

export class Redactor {
  /** Longest first: one may be part of another. */
  readonly #secrets: readonly string[]
  /** How many it has replaced. */
  count = 0

  constructor(secrets: readonly (string | undefined)[] = []) {
    this.#secrets = secrets
      .filter((secret): secret is string => secret !== undefined && secret.length >= KNOWN_SECRET_CHARS_MIN)
      .sort((a, b) => b.length - a.length)
  }

  text(text: string): string {
    let clean = text
    for (const secret of this.#secrets) {
      // Where it is part of JSON in a text, it may be escaped.
      for (const form of new Set([secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret)])) {
        if (!clean.includes(form)) continue
        this.count += clean.split(form).length - 1
        clean = clean.replaceAll(form, REDACTED)
      }
    }
    for (const shape of SHAPES) {
      clean = clean.replace(shape, (match: string, ...groups: unknown[]) => {
        const [kept, secret] = typeof groups[1] === 'string' ? [String(groups[0]), groups[1]] : ['', match]
        // What was redacted before stays as it is, so that redacting twice changes nothing.
        if (secret.startsWith(REDACTED)) return match
        this.count++
        return `${kept}${REDACTED}`
      })
    }
    return clean
  }

  /** A copy of a JSON value; its depth was checked before. */
  value(value: unknown): unknown {
    if (typeof value === 'string') return this.text(value)
    if (Array.isArray(value)) return value.map(item => this.value(item))
    if (!isPlainObject(value)) return value
    // Not by assignment: `__proto__` would be taken for the prototype.
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

/** What headers of a request hold that must not turn up elsewhere. */
export function secretsIn(headers: Iterable<readonly [string, string]>): string[] {
  const secrets: string[] = []
  for (const [name, value] of headers) {
    if (!SECRET_HEADER.test(name)) continue
    secrets.push(value, value.replace(/^(?:bearer|basic|token)\s+/i, ''))
  }
  return secrets
}

/** A base URL that may be shown: without a user, a password, a query. */
export function publicUrl(url: string): string {
  const { origin, pathname } = new URL(url)
  return `${origin}${pathname.replace(/\/+$/, '')}`
}
