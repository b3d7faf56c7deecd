// Package bench makes the planning benchmark: scenarios that the solver and its peer are measured with. The
// same seed gives the same bytes, also beside the Python program that first wrote them.
//
// Place in the flow: none; benchmarks and hack/scenarios import it.
package bench
