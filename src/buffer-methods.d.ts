/**
 * Methods of Buffer that are faster than `toString` and `write`, because they
 * need no encoding lookup. The type declarations of Node 20 lack them.
 */
interface Buffer {
  latin1Slice(start?: number, end?: number): string
  hexSlice(start?: number, end?: number): string
  utf8Slice(start?: number, end?: number): string
  latin1Write(text: string, offset?: number, length?: number): number
  utf8Write(text: string, offset?: number, length?: number): number
}
