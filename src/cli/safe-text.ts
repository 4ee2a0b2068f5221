/**
 * What is stored is somebody else's text: it may hold escape sequences that
 * move the cursor, change the title or write into the clipboard of whoever
 * reads it, and characters that turn the direction of a line. Before it comes
 * near a terminal each of them is shown as its number.
 */

// C0 and DEL, C1, marks and overrides of direction, separators of lines, invisible operators, tags, byte order mark.
const UNSAFE =
  /[\0-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu

/** On one line, and harmless. */
export function safeText(text: string): string {
  return text.replace(UNSAFE, escaped)
}

function escaped(char: string): string {
  if (char === '\n') return '\\n'
  if (char === '\t') return '\\t'
  if (char === '\r') return '\\r'
  return unicode(char)
}

/** In JSON's own way, one for each code unit. */
function unicode(char: string): string {
  let text = ''
  for (let i = 0; i < char.length; i++) text += `\\u${char.charCodeAt(i).toString(16).padStart(4, '0')}`
  return text
}

/** The same value for a program, harmless for a terminal: JSON itself leaves most of these characters as they are. */
export function safeJson(value: unknown, indent?: number): string {
  const text = JSON.stringify(value, replacer, indent) ?? 'null'
  // Line breaks are those of the indentation: within a string JSON has escaped them.
  return text.replace(UNSAFE, char => (char === '\n' ? char : unicode(char)))
}

/** Values of the store that JSON has no word for. */
function replacer(_: string, value: unknown): unknown {
  if (typeof value === 'bigint') return { $bigint: String(value) }
  if (value instanceof Uint8Array) return { $bytes: Buffer.from(value).toString('base64') }
  if (typeof value === 'number' && !Number.isFinite(value)) return { $number: String(value) }
  return value
}

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u
const NARROW = /\p{M}|\u200d|\ufe0f/u

/** Columns of a terminal that a text takes, near enough to line up a table. */
export function widthOf(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length
  let width = 0
  for (const char of text) width += NARROW.test(char) ? 0 : WIDE.test(char) ? 2 : 1
  return width
}

/** Cut to so many columns, with a sign that it was. */
export function cutTo(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text
  let cut = ''
  let width = 1
  for (const char of text) {
    width += widthOf(char)
    if (width > columns) break
    cut += char
  }
  return `${cut}…`
}
