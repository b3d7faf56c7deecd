package fit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/solver"
)

// Profile is one profile of the running scheduler.
type Profile struct {
	// Config is the completed profile: defaulted, with plugin arguments in internal form.
	Config schedulerconfig.KubeSchedulerProfile
	// Running is the framework that schedules with it.
	Running framework.Framework
}

// Options of New.
type Options struct {
	Profiles []Profile // at least one; pods that name no profile use the first
	// Registry has the factories of every plugin, in-tree ones included. Factories run a second time.
	Registry frameworkruntime.Registry
	// Exclude names plugins that are left out of trials: those that know only the real cluster.
	Exclude []string
	// Foreign maps the name of another scheduler to the profile whose filters stand in for it.
	Foreign map[string]string
}

// Fit implements solver.Fit. It is safe for concurrent use; trials of one profile take turns.
type Fit struct {
	shadows map[string]*shadow // by scheduler name
	first   *shadow

	mu   sync.Mutex
	base *base
}

var _ solver.Fit = (*Fit)(nil)

// New builds a framework beside each profile's. Informers that plugins need are requested from the
// profile's factory, which therefore must not have been started. ctx bounds the frameworks' life.
func New(ctx context.Context, o Options) (*Fit, error) {
	if len(o.Profiles) == 0 {
		return nil, errors.New("build fit: no profiles")
	}
	for foreign, own := range o.Foreign {
		if !slices.ContainsFunc(o.Profiles, func(p Profile) bool { return p.Config.SchedulerName == own }) {
			return nil, fmt.Errorf("build fit: pods of scheduler %s are to use profile %s, which does not exist", foreign, own)
		}
	}
	f := &Fit{shadows: map[string]*shadow{}}
	for _, p := range o.Profiles {
		s, err := newShadow(ctx, p, o.Registry, o.Exclude)
		if err != nil {
			return nil, fmt.Errorf("build fit for profile %s: %w", p.Config.SchedulerName, err)
		}
		f.shadows[p.Config.SchedulerName] = s
		if f.first == nil {
			f.first = s
		}
	}
	for foreign, own := range o.Foreign {
		if f.shadows[foreign] == nil {
			f.shadows[foreign] = f.shadows[own]
		}
	}
	return f, nil
}

// shadowOf returns the framework that stands for the pod's scheduler.
func (f *Fit) shadowOf(pod *corev1.Pod) *shadow {
	if s, ok := f.shadows[pod.Spec.SchedulerName]; ok {
		return s
	}
	return f.first
}

// Open implements solver.Fit. Between snapshots only the nodes that changed are computed again.
func (f *Fit) Open(_ context.Context, snapshot *cluster.Snapshot) (solver.Trial, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.base == nil || f.base.of != snapshot {
		next, err := newBase(snapshot, f.base)
		if err != nil {
			return nil, fmt.Errorf("open trial over snapshot of generation %d: %w", snapshot.Generation, err)
		}
		f.base = next
	}
	return newTrial(f, f.base), nil
}
