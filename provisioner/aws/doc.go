// Package aws implements cloud.Provider on EC2.
//
// Place in the flow: lifecycle creates and ends instances through Provider, the facade asks it for
// instance types. This package only wires: each AWS resource has a package of its own below (fleet,
// instance, template, types, pricing, network, image, profile, nodeclass), and reads no other's state.
// While AWS cannot be reached, Provider answers with errors and keeps trying; nothing else stops.
package aws
