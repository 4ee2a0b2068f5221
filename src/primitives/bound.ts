/**
 * A primitive has two forms: `db.kv.get(run, key)` names the scope, `db.run(run).kv.get(key)` has it bound. One interface
 * documents both, as a list `S` of the parameters that come first, and one class implements the first form. This file makes the
 * second form out of it.
 */

/** The class of a primitive's first form. */
interface Calls {
  readonly prototype: object
}

/** Where the bound form has its target. A symbol, so that it does not show among the methods. */
const TARGET = Symbol('target')

interface Bound {
  readonly [TARGET]: Readonly<Record<string, (...args: unknown[]) => unknown>>
}

/**
 * Returns a function that makes the bound form of an object. That object must know its scope: the bound form calls its methods
 * with `undefined` in place of one. `of`, which only changes types, takes no scope and returns the form that it was called on.
 */
export function boundForm<Form extends object>(calls: Calls): (target: object) => Form {
  const prototype = {
    of(): unknown {
      return this
    },
  }
  for (const name of methodsOf(calls.prototype)) {
    if (name === 'of') continue
    Object.defineProperty(prototype, name, {
      value(this: Bound, ...args: unknown[]) {
        return this[TARGET][name](undefined, ...args)
      },
    })
  }
  return target => {
    const form = Object.create(prototype)
    form[TARGET] = target
    return form
  }
}

/** The names of the methods, inherited ones included. */
function methodsOf(prototype: object): readonly string[] {
  if (prototype === Object.prototype) return []
  const own = Object.getOwnPropertyNames(prototype).filter(name => name !== 'constructor')
  return [...own, ...methodsOf(Object.getPrototypeOf(prototype))]
}
