// Package solver decides which nodes to open for pods that fit nowhere, and on which nodes, existing
// or new, every pod goes.
//
// Place in the flow: the facade gathers a Problem (a snapshot, the pools with their instance types,
// the pods that asked) and calls Solve; launch turns the Plan into NodeClaims. Solve is pure: the same
// Problem gives the same Plan. It chooses with exact algebra and asks Fit, the scheduler's own
// filters, to confirm every placement.
package solver
