// Package cloud is the seam between Berth and a cloud: the few things it asks of a provider and the
// typed errors that callers branch on.
//
// Place in the flow: launch and lifecycle call Provider to create, find and end instances; the facade
// asks it for instance types before a solve. provisioner/aws implements it; tests use small fakes.
// Nothing outside provisioner/aws and interruption knows which cloud it is.
package cloud
