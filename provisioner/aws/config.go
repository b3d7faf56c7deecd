package aws

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/smithy-go/logging"
	smithymiddleware "github.com/aws/smithy-go/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
)

// httpTimeout bounds a call to AWS, retries apart.
const httpTimeout = 4 * time.Minute

// Config of a Provider. Fields without "may" or "default" in their comment are required.
type Config struct {
	AWS         aws.Config // with credentials; see LoadConfig
	Region      string     // default that of AWS
	ClusterName string     // as in the tags of the cluster's resources
	// ClusterEndpoint is the URL of the API server and ClusterCA its CA bundle, base64 of PEM; machines
	// are told both.
	ClusterEndpoint, ClusterCA string
	KubernetesVersion          string // minor version, for example 1.37; image aliases follow it
	KubeDNSIP                  string // may be empty: images then use their default

	// VMMemoryOverheadPercent is a fraction: 0.075 stands for 7.5 %. 0 means none.
	VMMemoryOverheadPercent float64
	ReservedENIs            int
	IsolatedVPC             bool // no way to the Pricing API and to IAM
	DisableDryRun           bool // trust node classes without asking EC2
	// ImageInterval and SubnetInterval are how often classes look anew; default and minimum a minute.
	ImageInterval, SubnetInterval time.Duration

	// Adjust returns the types as node overlays correct them for the pool of that name, without changing
	// what it is given; launches then choose by what was planned with. An error means that the launch has to
	// be tried again. May be nil.
	Adjust func(pool string, types []*catalog.InstanceType) ([]*catalog.InstanceType, error)

	Client    versioned.Interface
	Informers externalversions.SharedInformerFactory // started by the caller after New
	Events    *events.Recorder
	Sink      record.EventRecorder // for events that only node classes have
	Clock     clock.Clock          // default the real clock
	Registry  prometheus.Registerer
}

func (c Config) complete() (Config, error) {
	if c.Region == "" {
		c.Region = c.AWS.Region
	}
	c.AWS.Region = c.Region
	c.ImageInterval, c.SubnetInterval = max(c.ImageInterval, time.Minute), max(c.SubnetInterval, time.Minute)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	var errs []error
	need := func(ok bool, name string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is missing", name))
		}
	}
	need(c.Region != "", "Region")
	need(c.ClusterName != "", "ClusterName")
	need(c.ClusterEndpoint != "", "ClusterEndpoint")
	need(c.KubernetesVersion != "", "KubernetesVersion")
	need(c.Client != nil, "Client")
	need(c.Informers != nil, "Informers")
	need(c.Events != nil, "Events")
	need(c.Sink != nil, "Sink")
	need(c.Registry != nil, "Registry")
	return c, errors.Join(errs...)
}

// LoadConfig reads the SDK's usual sources (environment, files, web identity, pod identity, instance
// role) and asks the instance metadata for the region when none of them has one. version is told to AWS
// in the user agent.
func LoadConfig(ctx context.Context, version string) (aws.Config, error) {
	return LoadConfigIn(ctx, "", version)
}

// LoadConfigIn is LoadConfig for a region that is known; empty means that it is looked for.
func LoadConfigIn(ctx context.Context, region, version string) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(region),
		config.WithRetryMode(aws.RetryModeStandard),
		config.WithLogger(logging.LoggerFunc(func(kind logging.Classification, format string, args ...any) {
			klog.FromContext(ctx).V(4).Info("AWS SDK", "kind", kind, "message", fmt.Sprintf(format, args...))
		})),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(httpTimeout)),
		config.WithAPIOptions([]func(*smithymiddleware.Stack) error{middleware.AddUserAgentKeyValue("berth", version)}),
	)
	if err != nil {
		return aws.Config{}, fmt.Errorf("load AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		out, err := imds.NewFromConfig(cfg).GetRegion(ctx, &imds.GetRegionInput{})
		if err != nil {
			return aws.Config{}, fmt.Errorf("find the AWS region: set AWS_REGION, or run on EC2 with instance metadata: %w", err)
		}
		cfg.Region = out.Region
	}
	return cfg, nil
}
