// Package requirement is the set algebra over label requirements: which values a label key may have,
// and what remains when several requirements hold at once.
//
// Place in the flow: everything that compares pods, pools, instance types and nodes by labels. Pure;
// values may be shared, and are never changed in place except a Set by Add and Merge.
package requirement
