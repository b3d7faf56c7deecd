// Package simulate is `berth simulate`: what would be bought for these manifests, at what price, and why
// the rest stays pending. It uses the product's own model, planner and filters over files; no cluster.
//
// Place in the flow: the command line calls it; it calls state, solver and fit as the provisioner does.
package simulate
