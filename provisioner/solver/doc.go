// Package solver decides which nodes to open for pods that fit nowhere, and on which nodes, existing
// or new, every pod goes.
//
// Place in the flow: the facade gathers a Problem (a snapshot, the pools with their instance types,
// the pods that asked) and calls Solve; launch turns the Plan into NodeClaims. Solve is pure: the same
// Problem gives the same Plan. It chooses with exact algebra and asks Fit, the scheduler's own
// filters, to confirm every placement.
//
// How it works, file by file:
//   - class.go groups equal pods; every decision is about classes.
//   - pool.go prepares each NodePool once: candidates with their daemons, offerings in order of price.
//     shape.go holds what a new node may still become as bitsets of types and kinds of offerings,
//     interned so that narrowing it by a pod's demands is a look-up.
//   - topology.go and rules.go count pods by domain exactly as the filter plugins do.
//   - solve.go places class after class: existing nodes (place.go), open claims, then a new claim whose
//     type open.go chooses by price for the work that it would take. walk.go keeps what is known
//     while one class is placed. diagnose.go says why a class fits nowhere.
//   - ground.go plans in a few ways and keeps the cheapest; finish.go picks the types of each claim.
//   - policy.go recasts what pods prefer as demands, or drops it, where the policy says so. bound.go says
//     what a plan could cost at the least.
//   - confirm.go asks the filters, in the order of the decisions; lessons.go keeps what they refused for
//     the next round.
package solver
