/** Where the lines of a run's log are: a file of the run's folder, or a database. Lines are opaque bytes here. */
export interface EventLog {
  /** All bytes of the log. */
  read(): Promise<Buffer>
  /** Keeps this many bytes and sets the rest aside: a line that a crash tore. */
  cut(bytes: number): Promise<void>
  /** Resolves once the line is durable. Lines are in the order of the calls. After a failure every call rejects. */
  append(line: string): Promise<void>
  close(): Promise<void>
}
