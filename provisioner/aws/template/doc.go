// Package template writes launch templates: one for each set of machines that differ in nothing but
// type and subnet. Unused ones are removed after a minute.
//
// Place in the flow: fleet names templates in its requests; nodeclass removes those of a deleted class.
package template
