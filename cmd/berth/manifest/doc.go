// Package manifest reads plain Kubernetes manifests, or a dump of a cluster, and tells what a planner
// would see: nodes, the pods on them, pods that wait, and what workloads would add.
//
// Place in the flow: cmd/berth reads files with it; nothing talks to a cluster.
package manifest
