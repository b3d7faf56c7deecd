package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"time"

	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
	configv1 "k8s.io/kube-scheduler/config/v1"
	schedulerappconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	conversionv1 "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/metrics/resources"
)

const shutdownTimeout = 5 * time.Second

// serve answers /livez, /readyz, /metrics and the rest of what a kube-scheduler answers, until ctx ends.
// The returned function waits for the end.
func serve(ctx context.Context, cc *schedulerappconfig.CompletedConfig, synced <-chan struct{}, leading func() bool) (wait func(), err error) {
	if cc.SecureServing == nil {
		return func() {}, nil
	}
	removeConfigz, err := publishConfiguration(cc)
	if err != nil {
		return nil, err
	}
	stopped, listenerStopped, err := cc.SecureServing.Serve(handler(ctx, cc, synced, leading), shutdownTimeout, ctx.Done())
	if err != nil {
		removeConfigz()
		return nil, fmt.Errorf("serve on --secure-port: %w", err)
	}
	return func() {
		<-listenerStopped
		<-stopped
		removeConfigz()
	}, nil
}

// publishConfiguration shows the configuration at /configz.
func publishConfiguration(cc *schedulerappconfig.CompletedConfig) (remove func(), err error) {
	const name = "componentconfig"
	versioned := &configv1.KubeSchedulerConfiguration{}
	if err := conversionv1.Convert_config_KubeSchedulerConfiguration_To_v1_KubeSchedulerConfiguration(&cc.ComponentConfig, versioned, nil); err != nil {
		return nil, fmt.Errorf("convert configuration: %w", err)
	}
	versioned.SetGroupVersionKind(configv1.SchemeGroupVersion.WithKind("KubeSchedulerConfiguration"))
	z, err := configz.New(name)
	if err != nil {
		return nil, fmt.Errorf("publish configuration: %w", err)
	}
	if err := z.Set(versioned); err != nil {
		configz.Delete(name)
		return nil, fmt.Errorf("publish configuration: %w", err)
	}
	return func() { configz.Delete(name) }, nil
}

func handler(ctx context.Context, cc *schedulerappconfig.CompletedConfig, synced <-chan struct{}, leading func() bool) http.Handler {
	var live []healthz.HealthChecker
	if cc.LeaderElection != nil {
		live = append(live, cc.LeaderElection.WatchDog)
	}
	ready := append([]healthz.HealthChecker{}, live...)
	ready = append(ready, healthz.NewShutdownHealthz(ctx.Done()), healthz.NamedCheck("sched-handler-sync", func(*http.Request) error {
		select {
		case <-synced:
			return nil
		default:
			return errors.New("caches are not filled yet")
		}
	}))
	paths := mux.NewPathRecorderMux("berth-scheduler")
	healthz.InstallHandler(paths, live...)
	healthz.InstallLivezHandler(paths)
	healthz.InstallReadyzHandler(paths, ready...)
	configz.InstallHandler(paths)
	paths.Handle("/metrics", legacyregistry.HandlerWithReset())
	pods := resources.Handler(cc.InformerFactory.Core().V1().Pods().Lister())
	paths.HandleFunc("/metrics/resources", func(w http.ResponseWriter, r *http.Request) {
		if leading() {
			pods.ServeHTTP(w, r)
		}
	})
	slis.SLIMetricsWithReset{}.Install(paths)
	if cc.ComponentConfig.EnableProfiling {
		routes.Profiling{}.Install(paths)
		if cc.ComponentConfig.EnableContentionProfiling {
			goruntime.SetBlockProfileRate(1)
		}
		routes.DebugFlags{}.Install(paths, "v", routes.StringFlagPutHandler(logs.GlogSetter))
	}
	return guarded(paths, cc)
}

// guarded lets only those in whom the API server lets in.
func guarded(h http.Handler, cc *schedulerappconfig.CompletedConfig) http.Handler {
	requests := &apirequest.RequestInfoFactory{}
	h = genericapifilters.WithAuthorization(h, cc.Authorization.Authorizer, clientscheme.Codecs)
	h = genericapifilters.WithAuthentication(h, cc.Authentication.Authenticator, genericapifilters.Unauthorized(clientscheme.Codecs), nil, nil)
	h = genericapifilters.WithRequestInfo(h, requests)
	h = genericapifilters.WithCacheControl(h)
	h = genericfilters.WithHTTPLogging(h)
	return genericfilters.WithPanicRecovery(h, requests)
}
