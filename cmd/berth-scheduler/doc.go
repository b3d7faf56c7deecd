// Command berth-scheduler is the product: the upstream scheduler with the NodeProvision plugin and the
// provisioner behind it, in one process.
//
// Place in the flow: only flags, signals and the exit code are here; package app puts the parts together.
package main
