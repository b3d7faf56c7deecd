// Package scheme decodes the arguments of the NodeProvision plugin out of a KubeSchedulerConfiguration.
//
// Place in the flow: the upstream decoder knows only its own group and hands other arguments on as they
// stand; the plugin's factory and the composition root turn them into the internal form here, strictly.
package scheme
