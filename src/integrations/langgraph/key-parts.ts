/** Keys are made of parts with `/` between them. A part may contain any text: `/` and `%` are escaped. */

/** The first character after the separator. */
const AFTER_SEPARATOR = '0'

export function escaped(part: string): string {
  return part.includes('/') || part.includes('%') ? part.replaceAll('%', '%25').replaceAll('/', '%2F') : part
}

export function unescaped(part: string): string {
  return part.includes('%') ? part.replaceAll('%2F', '/').replaceAll('%25', '%') : part
}

/** The first key after all keys with a prefix that ends with the separator. */
export function endOf(prefix: string): string {
  return prefix.slice(0, -1) + AFTER_SEPARATOR
}
