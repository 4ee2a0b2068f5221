import type { ErrorCode } from '../index.ts'

/** The exit codes of commands. Scripts rely on them. */
export const EXIT = {
  ok: 0,
  /** A problem was found, or the command failed. */
  problem: 1,
  /** A usage error: an unknown command, option or value. */
  usage: 2,
  /** The run or token does not exist. */
  notFound: 3,
  /** The store cannot be opened or reached: locked, no folder, no server, no permission. */
  unreachable: 4,
  /** An internal error: a bug in Annals. */
  internal: 70,
  interrupted: 130,
} as const

export type ExitCode = (typeof EXIT)[keyof typeof EXIT]

const BY_CODE: Partial<Record<ErrorCode, ExitCode>> = {
  INVALID_ARGUMENT: EXIT.usage,
  RUN_NOT_FOUND: EXIT.notFound,
  TRACE_NOT_FOUND: EXIT.notFound,
  LOCKED: EXIT.unreachable,
  IO_ERROR: EXIT.unreachable,
  TIMEOUT: EXIT.unreachable,
  FORMAT_TOO_NEW: EXIT.unreachable,
  FORMAT_TOO_OLD: EXIT.unreachable,
  UNAVAILABLE: EXIT.unreachable,
  UNAUTHENTICATED: EXIT.unreachable,
  FORBIDDEN: EXIT.unreachable,
  RATE_LIMITED: EXIT.unreachable,
  NOT_FOUND: EXIT.notFound,
}

export function exitCodeOf(code: ErrorCode): ExitCode {
  return BY_CODE[code] ?? EXIT.problem
}
