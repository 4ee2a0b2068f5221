/**
 * Where the lines of a launch are: a file of the run's folder, or a database.
 * Lines are bytes to it; what they say, and that each follows the one before,
 * is the journal's business.
 */
export interface EventLog {
  /** All that is there, to the last byte. */
  read(): Promise<Buffer>
  /** Keeps this many bytes and sets aside what is behind them: a line that was torn when its writer died. */
  cut(bytes: number): Promise<void>
  /** Durable once it resolves. Lines come in the order of the calls; after a failure every call fails. */
  append(line: string): Promise<void>
  close(): Promise<void>
}
