// Package network finds the subnets and security groups of a class and picks, for each zone, the subnet
// with the most free addresses.
//
// Place in the flow: nodeclass resolves selectors through it, fleet asks it where to launch.
package network
