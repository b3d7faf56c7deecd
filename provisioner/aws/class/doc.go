// Package class reads EC2NodeClasses: effective AMI family, alias, zones, and the hash of what makes
// nodes drift.
//
// Place in the flow: everything below provisioner/aws that looks at a class asks here, so that all of
// it agrees. Pure.
package class
