package app

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	ekssdk "github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/provisioner/aws"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
)

// newCloud makes the provider on EC2. Everything that it needs of AWS at the start is asked for here,
// so that an AWS that cannot be reached shows as one error, and the start is tried again.
func newCloud(ctx context.Context, in Inputs, client versioned.Interface, ours externalversions.SharedInformerFactory,
	recorder *events.Recorder, sink record.EventRecorder, registry prometheus.Registerer,
	adjust func(pool string, types []*catalog.InstanceType) ([]*catalog.InstanceType, error),
) (*aws.Provider, error) {
	sdk, err := loadAWS(ctx, in.AWS)
	if err != nil {
		return nil, err
	}
	endpoint := in.Settings.ClusterEndpoint
	if endpoint == "" {
		if endpoint, err = clusterEndpoint(ctx, sdk, in.Settings.ClusterName); err != nil {
			return nil, err
		}
	}
	kubernetes, err := kubernetesVersion(in)
	if err != nil {
		return nil, err
	}
	authority, err := clusterAuthority(in)
	if err != nil {
		return nil, err
	}
	return aws.New(aws.Config{
		AWS: sdk, ClusterName: in.Settings.ClusterName, ClusterEndpoint: endpoint, ClusterCA: authority,
		KubernetesVersion: kubernetes, KubeDNSIP: kubeDNS(ctx, in),
		VMMemoryOverheadPercent: in.Settings.VMMemoryOverheadPercent, ReservedENIs: in.Settings.ReservedENIs, IsolatedVPC: in.Settings.IsolatedVPC,
		Client: client, Informers: ours, Events: recorder, Sink: sink, Registry: registry, Adjust: adjust,
	})
}

// loadAWS reads the SDK's usual sources; what the options say goes before.
func loadAWS(ctx context.Context, options AWSOptions) (awssdk.Config, error) {
	if options.Region != "" && os.Getenv("AWS_REGION") == "" {
		// Without a region the SDK would ask the instance metadata service, which is not there.
		sdk, err := aws.LoadConfigIn(ctx, options.Region, version.Get().GitVersion)
		return withOptions(sdk, options), err
	}
	sdk, err := aws.LoadConfig(ctx, version.Get().GitVersion)
	return withOptions(sdk, options), err
}

func withOptions(sdk awssdk.Config, options AWSOptions) awssdk.Config {
	if options.Region != "" {
		sdk.Region = options.Region
	}
	if options.EndpointURL != "" {
		sdk.BaseEndpoint = &options.EndpointURL
	}
	if options.AccessKey != "" {
		sdk.Credentials = credentials.NewStaticCredentialsProvider(options.AccessKey, options.SecretKey, "")
	}
	return sdk
}

func clusterEndpoint(ctx context.Context, sdk awssdk.Config, cluster string) (string, error) {
	out, err := ekssdk.NewFromConfig(sdk).DescribeCluster(ctx, &ekssdk.DescribeClusterInput{Name: &cluster})
	if err != nil {
		return "", fmt.Errorf("find the API server's address through eks:DescribeCluster of %q (or set --cluster-endpoint): %w", cluster, err)
	}
	if out.Cluster == nil || out.Cluster.Endpoint == nil {
		return "", fmt.Errorf("eks:DescribeCluster of %q names no endpoint; set --cluster-endpoint", cluster)
	}
	return *out.Cluster.Endpoint, nil
}

// kubernetesVersion is the API server's minor version, for example 1.37. Image aliases follow it.
func kubernetesVersion(in Inputs) (string, error) {
	info, err := in.Client.Discovery().ServerVersion()
	if err != nil {
		return "", fmt.Errorf("ask the API server for its version: %w", err)
	}
	return info.Major + "." + strings.TrimSuffix(info.Minor, "+"), nil
}

// clusterAuthority is the CA bundle that new nodes trust, base64 of PEM.
func clusterAuthority(in Inputs) (string, error) {
	if in.Settings.ClusterCABundle != "" {
		return in.Settings.ClusterCABundle, nil
	}
	config := rest.CopyConfig(in.RESTConfig)
	if err := rest.LoadTLSFiles(config); err != nil {
		return "", fmt.Errorf("read the API server's CA (or set --cluster-ca-bundle): %w", err)
	}
	return base64.StdEncoding.EncodeToString(config.CAData), nil
}

// kubeDNS is the address that pods ask for names; images have a default for an empty one.
func kubeDNS(ctx context.Context, in Inputs) string {
	service, err := in.Client.CoreV1().Services("kube-system").Get(ctx, "kube-dns", metav1.GetOptions{})
	if err != nil {
		klog.FromContext(ctx).Info("Service kube-system/kube-dns is not there, nodes use their image's default DNS address", "err", err)
		return ""
	}
	return service.Spec.ClusterIP
}
