// Package image finds the machine images of a class: by alias through SSM, by id, by SSM parameter, or
// by name, owner and tags.
//
// Place in the flow: nodeclass writes what it finds into the class's status; For picks the image of an
// instance type from there.
package image
