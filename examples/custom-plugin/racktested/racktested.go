// Package racktested is a Filter plugin that keeps pods off nodes whose rack nobody has tested.
//
// Place in the flow: an example of a plugin that knows nothing of node provisioning.
package racktested

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	// Name of the plugin in a scheduler configuration.
	Name = "RackTested"
	// Label that a node must have, with the value "true".
	Label = "example.com/rack-tested"
)

type plugin struct{}

var (
	_ fwk.FilterPlugin      = plugin{}
	_ fwk.EnqueueExtensions = plugin{}
)

// New makes the plugin. It has no arguments.
func New(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return plugin{}, nil }

// Name of the plugin.
func (plugin) Name() string { return Name }

// Filter refuses nodes without the label.
func (plugin) Filter(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if info.Node().Labels[Label] == "true" {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node's rack is not tested")
}

// EventsToRegister says what may help a refused pod: a node that is new or gets another label.
func (plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel}}}, nil
}
