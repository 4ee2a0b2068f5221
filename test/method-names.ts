/** The names of an object's public methods and accessors, inherited ones included. */
export function methodNames(object: object): readonly string[] {
  const names = new Set<string>()
  for (
    let type = Object.getPrototypeOf(object);
    type !== Object.prototype;
    type = Object.getPrototypeOf(type)
  ) {
    for (const name of Object.getOwnPropertyNames(type)) names.add(name)
  }
  names.delete('constructor')
  return [...names]
}
