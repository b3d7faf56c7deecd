package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/discovery"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// servePlain answers in plain HTTP, without asking who it is: /metrics on one port, /healthz and /readyz
// on another, where Karpenter has them. The returned function waits for the end, which comes with ctx.
func (p *parts) servePlain(ctx context.Context, synced <-chan struct{}) (wait func(), err error) {
	var running sync.WaitGroup
	wait = running.Wait
	if p.metricsPort != 0 {
		paths := mux.NewPathRecorderMux("berth-metrics")
		paths.Handle("/metrics", legacyregistry.HandlerWithReset())
		if err := listen(ctx, &running, "METRICS_PORT", p.metricsPort, paths); err != nil {
			return wait, err
		}
	}
	if p.probePort != 0 {
		var crds discovery.ServerResourcesInterface
		if p.gate != nil {
			crds = p.config.Client.Discovery()
		}
		var live []healthz.HealthChecker
		if p.config.LeaderElection != nil {
			live = append(live, p.config.LeaderElection.WatchDog)
		}
		if err := listen(ctx, &running, "HEALTH_PROBE_PORT", p.probePort, probes(live, synced, crds)); err != nil {
			return wait, err
		}
	}
	return wait, nil
}

// probes answer whether the process lives, and whether it can do its work. A standby can, too. crds is nil
// when nothing is bought.
func probes(live []healthz.HealthChecker, synced <-chan struct{}, crds discovery.ServerResourcesInterface) http.Handler {
	ready := append(slices.Clone(live), healthz.PingHealthz, healthz.NamedCheck("manager", func(*http.Request) error {
		if !closed(synced) {
			return errors.New("caches are not filled yet")
		}
		return nil
	}))
	if crds != nil {
		ready = append(ready, healthz.NamedCheck("crd", func(*http.Request) error { return kindsServed(crds) }))
	}
	paths := mux.NewPathRecorderMux("berth-probes")
	healthz.InstallHandler(paths, live...)
	healthz.InstallReadyzHandler(paths, ready...)
	return paths
}

// kindsServed reports which of the kinds that nodes are bought by the API server does not know.
func kindsServed(api discovery.ServerResourcesInterface) error {
	group := karpv1.SchemeGroupVersion.String()
	list, err := api.ServerResourcesForGroupVersion(group)
	if err != nil {
		return fmt.Errorf("the API server does not serve %s (install the chart berth-crd): %w", group, err)
	}
	for _, name := range []string{"nodepools", "nodeclaims"} {
		found := false
		for _, r := range list.APIResources {
			found = found || r.Name == name
		}
		if !found {
			return fmt.Errorf("the API server does not serve %s in %s: install the chart berth-crd", name, group)
		}
	}
	return nil
}

func listen(ctx context.Context, running *sync.WaitGroup, variable string, port int, handler http.Handler) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("environment variable %s has the value %d: %w; use a free port, or 0 for none", variable, port, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	running.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Serving ended", "port", port)
		}
	})
	running.Go(func() {
		<-ctx.Done()
		_ = server.Close() // probes and scrapes have nothing to lose
	})
	return nil
}
