// Package launch turns plans into NodeClaims and hands them on to be launched.
//
// Place in the flow: the facade solves a batch and calls Apply. Apply looks again at what may have
// moved since the plan was made (pods, pools, limits), writes each NodeClaim with everything that a
// restart needs to go on from it, promises the claim to its pods, and starts the launch groups.
package launch
