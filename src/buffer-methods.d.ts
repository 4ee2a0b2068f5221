/**
 * Methods that every Buffer has, and that skip the encoding lookup of
 * `toString` and `write`; the type declarations of Node 20 leave them out.
 */
interface Buffer {
  latin1Slice(start?: number, end?: number): string
  hexSlice(start?: number, end?: number): string
  utf8Slice(start?: number, end?: number): string
  latin1Write(text: string, offset?: number, length?: number): number
  utf8Write(text: string, offset?: number, length?: number): number
}
