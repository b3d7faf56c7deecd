// Package batch gathers asks into windows, so that pods that become pending together are planned
// together: a window closes when nothing new has come for a moment, or at the latest after a maximum.
//
// Place in the flow: the facade adds asks, takes batches out and has each solved.
package batch
