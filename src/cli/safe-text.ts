/**
 * Escapes text for a terminal. Stored or typed text may contain escape sequences that move the cursor, set the title or write
 * to the clipboard, characters that reverse the direction of a line, and invisible characters. Each is shown as `\u001b`.
 */

/** Joiners and selectors are allowed inside an emoji. */
const IN_EMOJI =
  '(?<=\\p{Extended_Pictographic})\\ufe0f|' +
  '(?<=[\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\ufe0f])\\u200d(?=\\p{Extended_Pictographic})'
// Controls (C0, DEL, C1), direction and format marks, line separators, lone surrogates, and everything invisible.
const UNSAFE = new RegExp(
  `(?!${IN_EMOJI})[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}\\p{Cs}\\p{Default_Ignorable_Code_Point}]`,
  'gu',
)
/** A quick test that most texts pass. */
const MAY_BE_UNSAFE = /[^\x20-\x7e]/

/** The text on one line, with every unsafe character escaped. */
export function safeText(text: string): string {
  return MAY_BE_UNSAFE.test(text) ? text.replace(UNSAFE, escaped) : text
}

/** The colour sequences that this program writes. */
const OWN_COLORS = /(\u001b\[(?:1|2|22|31|32|33|36|39)m)/

/** The same for a line that may contain this program's own colours. */
export function safeLine(line: string, isColored: boolean): string {
  if (!isColored) return safeText(line)
  return line
    .split(OWN_COLORS)
    .map((part, i) => (i % 2 === 1 ? part : safeText(part)))
    .join('')
}

function escaped(char: string): string {
  if (char === '\n') return '\\n'
  if (char === '\t') return '\\t'
  if (char === '\r') return '\\r'
  return unicode(char)
}

/** As JSON escapes it: one `\uXXXX` per code unit. */
function unicode(char: string): string {
  let text = ''
  for (let i = 0; i < char.length; i++) text += `\\u${char.charCodeAt(i).toString(16).padStart(4, '0')}`
  return text
}

/** JSON with every unsafe character escaped; it parses to the same value. `JSON.stringify` leaves most of them as they are. */
export function safeJson(value: unknown, indent?: number): string {
  const text = JSON.stringify(value, replacer, indent) ?? 'null'
  if (!MAY_BE_UNSAFE.test(text)) return text
  // Line breaks come from the indentation: inside strings, JSON has escaped them.
  return text.replace(UNSAFE, char => (char === '\n' ? char : unicode(char)))
}

/** Writes values that JSON cannot represent. */
function replacer(_: string, value: unknown): unknown {
  if (typeof value === 'bigint') return { $bigint: String(value) }
  if (value instanceof Uint8Array) return { $bytes: Buffer.from(value).toString('base64') }
  if (typeof value === 'number' && !Number.isFinite(value)) return { $number: String(value) }
  return value
}

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u
const NARROW = /\p{M}|\u200d|\ufe0f/u

/** The number of terminal columns that a text takes, close enough to align a table. */
export function widthOf(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length
  let width = 0
  for (const char of text) width += NARROW.test(char) ? 0 : WIDE.test(char) ? 2 : 1
  return width
}

/** Cuts a text to a number of columns and marks the cut with an ellipsis. */
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
