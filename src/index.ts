export { AnnalsError, type ErrorCode, type ErrorDetails } from './core/errors.ts'
