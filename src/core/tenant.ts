/** Whether Annals keeps the tenant for its own data, such as the tokens of a server. Those names begin with `_`. */
export function isReservedTenant(tenant: string): boolean {
  return tenant.startsWith('_')
}
