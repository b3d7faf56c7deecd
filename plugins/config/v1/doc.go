// Package v1 has the arguments of the NodeProvision plugin as users write them, group berth.dev/v1,
// with their defaults and the conversion to the internal form.
//
// Place in the flow: config/scheme decodes pluginConfig of a KubeSchedulerConfiguration into these.
package v1
