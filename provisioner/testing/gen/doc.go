// Package gen makes random planning problems, small enough to be read when one fails and varied enough to
// mix every rule that the planner knows. The same seed gives the same problem.
//
// Place in the flow: none; property tests of the solver and the differential test against the scheduler's
// filters import it.
package gen
