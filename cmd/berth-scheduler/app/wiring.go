package app

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// newProvisioner makes the provisioner out of the composition root's inputs.
func newProvisioner(_ context.Context, in Inputs) (Provisioner, error) {
	return &observer{in: in}, nil
}

// observer tells every pod that nobody buys nodes here.
type observer struct{ in Inputs }

func (o *observer) Ask(pod *corev1.Pod) {
	o.in.Promises.Refuse(pod, "this build has no provisioner", clock.RealClock{}.Now())
}

func (o *observer) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
