// Package profile makes the IAM instance profiles through which machines get their role, and removes
// those that nothing uses any more.
//
// Place in the flow: nodeclass asks for the profile of a class that names a role.
package profile
