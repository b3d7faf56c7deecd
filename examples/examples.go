// Package examples carries the example manifests, one folder per scenario, so that the demo and the
// tests apply the very files that people read.
package examples

import "embed"

// Files holds every manifest under its path in this folder, for example "quickstart/nodepool.yaml".
//
//go:embed */*.yaml
var Files embed.FS
