// Package config has the arguments of the NodeProvision plugin in the form that the code works with.
//
// Place in the flow: config/v1 is the form on the wire, with defaults and conversion;
// config/validation finds faults; config/scheme decodes what stands in a KubeSchedulerConfiguration.
// The plugin takes the policies from here, the composition root the batch windows.
package config
