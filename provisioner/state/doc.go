// Package state is the only mutable model of the cluster. Informers feed it; it gives out immutable
// cluster.Snapshots.
//
// Place in the flow: the facade takes a snapshot for each solve and disruption for each round; launch
// tells it of claims that it has just written, so that the next solve sees them before the watch does.
// Only what has changed since the last snapshot is built again.
package state
