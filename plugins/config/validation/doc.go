// Package validation finds faults in the arguments of the NodeProvision plugin.
//
// Place in the flow: the plugin's factory and the composition root call it after decoding, so that a
// wrong configuration ends the process at start, naming the field, its value and what would be right.
package validation
