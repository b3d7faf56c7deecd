// Package agree holds the differential test between the planner's algebra and the scheduler's own filters:
// what Solve plans for random problems, the filters must accept as it stands.
//
// Place in the flow: none; it has tests only.
package agree
