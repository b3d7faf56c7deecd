package app

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	kubeschedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/berth-dev/berth/plugins/nodeprovision"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/solver"
)

// Option adds to the scheduler's registry of plugins.
type Option = kubeschedulerapp.Option

// WithPlugin adds a plugin, which a profile then may enable by name.
var WithPlugin = kubeschedulerapp.WithPlugin

// Options of Run, for running the scheduler inside another process. Nothing global is changed that
// would keep a second Run in the same process from working.
type Options struct {
	// Config is how to reach the API server; nil means what the configuration says, else in-cluster.
	Config *rest.Config
	// ConfigFile is a KubeSchedulerConfiguration; empty means the shipped one.
	ConfigFile string
	// ClusterName goes before the flag in Args.
	ClusterName string
	AWS         AWSOptions
	// Args are flags as on the command line. With Config set, nothing is served unless they say
	// --secure-port.
	Args []string
	// Plugins beside the in-tree ones and ours.
	Plugins []Option
	// Identity in the leases; empty means one that is made up. A process that keeps its identity takes
	// its leases back at once after a crash.
	Identity string
	// Ready is called once, when this process leads, caches are filled, pods are being scheduled, and
	// the provisioner runs or stands by for another holder of its lease.
	Ready func()
	// Build makes the provisioner; nil means the real one.
	Build Builder
}

// AWSOptions go before what the AWS SDK finds in environment and files. Empty fields are left to it.
type AWSOptions struct {
	Region, EndpointURL, AccessKey, SecretKey string
}

// Provisioner is what the composition root needs of the provisioner.
type Provisioner interface {
	// Ask wants a node for the pod. It returns at once and may be called before Run, and between two
	// runs; such pods are taken up when Run starts.
	Ask(pod *corev1.Pod)
	// Run works until ctx ends, and returns when nothing of it runs any more. It may be called again
	// after it has returned. An error before ctx ended means that it should be called again later.
	Run(ctx context.Context) error
}

// Builder makes the provisioner. It is called once per Run, before leadership and before informers
// start; it may request informers, and starts nothing. ctx bounds the process, not leadership.
type Builder func(ctx context.Context, in Inputs) (Provisioner, error)

// Inputs are what the composition root gives to the provisioner.
type Inputs struct {
	Settings   Settings
	AWS        AWSOptions
	Client     kubernetes.Interface
	RESTConfig *rest.Config
	// Informers are the scheduler's own. They are started by the composition root, and have synced
	// before Run is called.
	Informers informers.SharedInformerFactory
	Promises  *promise.Table
	Hidden    *nodeprovision.Hidden
	Fit       solver.Fit
	// DefaultSpread returns the topology spread constraints that a pod's profile adds to a pod without any.
	DefaultSpread func(pod *corev1.Pod) []corev1.TopologySpreadConstraint
	// Activate moves pods to the front of the scheduling queue. Not from inside a queueing hint.
	Activate func(ctx context.Context, pods []*corev1.Pod)
	// SchedulerNames are the profiles with NodeProvision; ProvisionFor the foreign schedulers whose
	// pods get nodes too.
	SchedulerNames, ProvisionFor []string
	// Metrics end up at /metrics with the scheduler's own.
	Metrics  prometheus.Registerer
	Recorder events.EventRecorderLogger
	// Leads returns an error unless this process holds the provisioner's lease; nil in Inputs means that it
	// always does. It is called before each write to objects of karpenter.sh, and does no I/O.
	Leads func() error
}
