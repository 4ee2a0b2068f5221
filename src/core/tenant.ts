/** Names of tenants that begin so are for what Annals keeps for itself, such as the tokens of a server. */
export function isReservedTenant(tenant: string): boolean {
  return tenant.startsWith('_')
}
