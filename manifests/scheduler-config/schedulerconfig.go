// Package schedulerconfig embeds the KubeSchedulerConfiguration that Berth ships.
//
// Place in the flow: berth-scheduler and berth-local use it when the user gives no configuration.
package schedulerconfig

import _ "embed"

// Default is a KubeSchedulerConfiguration in YAML with one profile, named berth.
//
//go:embed berth.yaml
var Default []byte
