// Package scenario turns planning scenarios into problems for the solver: one file with pools, machines,
// nodes and groups of pods, in a form that other planners can read too.
//
// Place in the flow: none; tests and benchmarks import it.
package scenario
