// Package poolhash sums up the part of a NodePool's template whose change makes nodes drift.
//
// Place in the flow: nodepool keeps the sum on the pool's annotations, launch copies it to every
// NodeClaim, and drift compares both. It is pure.
package poolhash
