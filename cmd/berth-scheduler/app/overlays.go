package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/overlay"
)

// overlaid ties planning and launching to the NodeOverlay controller, which is made after both because it
// needs what they are made of. With the gate off it does nothing.
type overlaid struct {
	on         bool
	controller *overlay.Controller
}

// launch is how the provider adjusts types; nil with the gate off.
func (o *overlaid) launch() func(pool string, types []*catalog.InstanceType) ([]*catalog.InstanceType, error) {
	if !o.on {
		return nil
	}
	return func(pool string, types []*catalog.InstanceType) ([]*catalog.InstanceType, error) {
		return o.controller.AdjustNamed(pool, types)
	}
}

// plan is how the facade adjusts types, and how it knows what they lack; nil with the gate off.
func (o *overlaid) plan() (
	adjust func(pool *karpv1.NodePool, types []*catalog.InstanceType) ([]*catalog.InstanceType, string),
	lacking func(pool, instanceType string, name corev1.ResourceName) bool,
) {
	if !o.on {
		return nil, nil
	}
	adjust = func(pool *karpv1.NodePool, types []*catalog.InstanceType) ([]*catalog.InstanceType, string) {
		return o.controller.Adjust(pool, types)
	}
	lacking = func(pool, instanceType string, name corev1.ResourceName) bool {
		return o.controller.Lacking(pool, instanceType, name)
	}
	return adjust, lacking
}

// open makes the controller; it must be called before the informers start.
func (o *overlaid) open(deps overlay.Deps) (err error) {
	if !o.on {
		return nil
	}
	if o.controller, err = overlay.New(deps, overlay.Options{}); err != nil {
		return fmt.Errorf("make NodeOverlay controller: %w", err)
	}
	return nil
}

// run works until ctx ends.
func (o *overlaid) run(ctx context.Context) {
	if o.on {
		o.controller.Run(ctx)
	}
}
