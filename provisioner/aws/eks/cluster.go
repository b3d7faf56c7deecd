package eks

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
)

// API is what is asked of EKS.
type API interface {
	DescribeCluster(context.Context, *eks.DescribeClusterInput, ...func(*eks.Options)) (*eks.DescribeClusterOutput, error)
}

// Cluster is the cluster as EKS knows it. Safe for concurrent use.
type Cluster struct {
	api  API
	name string
	cidr atomic.Pointer[string]
}

// New makes a Cluster; nothing is asked yet.
func New(api API, name string) *Cluster { return &Cluster{api: api, name: name} }

// CIDR returns the service CIDR, "" until Resolve has succeeded.
func (c *Cluster) CIDR() string { return aws.ToString(c.cidr.Load()) }

// Resolve learns the service CIDR unless it is known.
func (c *Cluster) Resolve(ctx context.Context) error {
	if c.CIDR() != "" {
		return nil
	}
	out, err := c.api.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String(c.name)})
	if err != nil {
		return fmt.Errorf("describe EKS cluster %s: %w", c.name, err)
	}
	if out.Cluster == nil || out.Cluster.KubernetesNetworkConfig == nil {
		return fmt.Errorf("describe EKS cluster %s: %w", c.name, errors.New("it has no network configuration"))
	}
	network := out.Cluster.KubernetesNetworkConfig
	for _, cidr := range []*string{network.ServiceIpv4Cidr, network.ServiceIpv6Cidr} {
		if aws.ToString(cidr) != "" {
			c.cidr.Store(cidr)
			return nil
		}
	}
	return fmt.Errorf("describe EKS cluster %s: %w", c.name, errors.New("it has no service CIDR"))
}
