// What the audit tells of each token: 0 as the template writes it, 1 the first difference, 2 not told (behind the first
// difference, or never audited). The audit tells one position and a count.
export function driftOf(branch) {
  const told = branch.extra_fields.drift;
  const at = new Uint8Array(branch.ids.length);
  if (!told) return at.fill(2);
  if (!told.count) return at;
  at.fill(2, told.first.position);
  at[Math.min(told.first.position, at.length - 1)] = 1;
  return at;
}
