// Package provisioner is the facade over everything that turns a pod that fits nowhere into a node:
// it takes the scheduler's asks, gathers them into batches, has each batch solved and launched, keeps
// the promises that come of it, and asks again when the world has changed.
//
// Place in the flow: the plugin calls Ask inside the scheduling cycle; Run, started with leadership,
// owns every loop below: batch, solve, launch, lifecycle, NodePool status. cmd wires it to a cloud and
// to the scheduler.
package provisioner
