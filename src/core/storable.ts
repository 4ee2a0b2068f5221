import type { Value } from './value.ts'

/**
 * `T` if it can be stored, as far as its type tells. Interfaces are accepted, although they are no `Value` for TypeScript: they
 * have no index signature. Functions, symbols, dates and other objects with methods are compile errors. What a type can't tell
 * (lone surrogates, instances of classes, the contents of `unknown`) is checked when the value is written.
 */
export type Storable<T> = unknown extends T
  ? T
  : T extends Value
    ? T
    : T extends undefined | symbol | ((...args: never) => unknown)
      ? never
      : T extends object
        ? { readonly [K in keyof T]: Storable<T[K]> }
        : never

/** The value that a call takes: any value that can be stored if `V` is `Value`, otherwise a `V`. */
export type Given<V, T> = [Value] extends [V] ? T & Storable<T> : V & Storable<V>
