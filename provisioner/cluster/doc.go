// Package cluster holds the picture of a cluster that decisions are made from: nodes that exist, nodes
// that are on their way, the pods on them and the daemons that every new node will run.
//
// Place in the flow: state builds a Snapshot from informers; solver, fit and disruption read it. A
// Snapshot is immutable once handed out; whoever needs another one makes a copy.
package cluster
