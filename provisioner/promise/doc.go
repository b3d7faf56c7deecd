// Package promise remembers which pods have asked for a node, which node was bought or kept for whom,
// and which pods no node can help.
//
// Place in the flow: the plugin looks a pod up here in PostFilter and keeps room in Filter; the facade
// writes the verdicts of the solver; state reads the table so that promised pods take room in the
// next snapshot. The table is memory only: the durable copy is an annotation on the NodeClaim.
package promise
