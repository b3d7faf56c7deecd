// Package resources computes with amounts of node resources as int64 vectors: cpu in millicores,
// everything else in its unit (bytes, counts).
//
// Place in the flow: the arithmetic under cluster, solver, state and launch. Pure.
package resources
