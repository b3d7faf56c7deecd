// Package plugins holds what Berth adds to the scheduling framework: one plugin, its arguments, and the
// list of the upstream signatures that both rely on.
//
// Place in the flow: cmd/berth-scheduler/app registers the plugin with the upstream scheduler.
package plugins
