package ec2sim

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/provisioner/aws/facts"
)

// Naming is how instances get their private DNS name, which becomes the node name.
type Naming string

const (
	// IPName gives ip-10-0-1-2.ec2.internal. The address is chosen while the
	// instance starts, so CreateFleet cannot tell the name.
	IPName Naming = "ip-name"
	// ResourceName gives i-0123456789abcdef0.ec2.internal.
	ResourceName Naming = "resource-name"
)

// Options configure a Server. The zero value is valid.
type Options struct {
	Region          string // default us-east-1; one that facts.Regions names
	AccountID       string // twelve digits; default 123456789012
	ClusterName     string // default berth
	ClusterEndpoint string // what EKS DescribeCluster answers; default https://cluster.invalid
	ClusterCA       string // base64; what EKS DescribeCluster answers; default empty
	EKSVersion      string // minor version of the EKS cluster; default 1.37
	ServiceIPv4CIDR string // default 10.100.0.0/16 unless ServiceIPv6CIDR is set
	ServiceIPv6CIDR string // default empty

	Seed  uint64           // decides ids, pool depths and the like
	Clock clock.WithTicker // default the real clock

	// BootDelay is the time from launch until the machine has booted
	// (Instance.BootAt); it leaves pending after a tenth of it. Default 2s.
	BootDelay time.Duration
	// VisibilityDelay is how long DescribeInstances does not know a new instance.
	VisibilityDelay time.Duration
	// Latency is added to every reply.
	Latency time.Duration

	Naming   Naming         // default IPName
	Throttle bool           // apply EC2's documented request limits
	World    *World         // default DefaultWorld
	Catalog  *facts.Catalog // default the embedded one
	Script   Script         // what happens at which time after New
}

var accountPattern = regexp.MustCompile(`^[0-9]{12}$`)

// complete fills the defaults and reports every fault at once.
func (o Options) complete() (Options, error) {
	o.Region = cmp.Or(o.Region, "us-east-1")
	o.AccountID = cmp.Or(o.AccountID, "123456789012")
	o.ClusterName = cmp.Or(o.ClusterName, "berth")
	o.ClusterEndpoint = cmp.Or(o.ClusterEndpoint, "https://cluster.invalid")
	o.EKSVersion = cmp.Or(o.EKSVersion, "1.37")
	if o.ServiceIPv6CIDR == "" {
		o.ServiceIPv4CIDR = cmp.Or(o.ServiceIPv4CIDR, "10.100.0.0/16")
	}
	o.BootDelay = cmp.Or(o.BootDelay, 2*time.Second)
	o.Naming = cmp.Or(o.Naming, IPName)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	var errs []error
	if o.Catalog == nil {
		c, err := facts.Load()
		errs = append(errs, err)
		o.Catalog = &c
	}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(accountPattern.MatchString(o.AccountID), "accountID %q is not twelve digits", o.AccountID)
	check(o.BootDelay > 0, "bootDelay %s is negative", o.BootDelay)
	check(o.VisibilityDelay >= 0, "visibilityDelay %s is negative", o.VisibilityDelay)
	check(o.Latency >= 0, "latency %s is negative", o.Latency)
	check(o.Naming == IPName || o.Naming == ResourceName, "naming %q is neither %s nor %s", o.Naming, IPName, ResourceName)
	check(len(o.Catalog.Zones(o.Region)) > 0, "region %q has no known zones; known regions: %s",
		o.Region, strings.Join(o.Catalog.Regions(), ", "))
	if o.World == nil {
		w := DefaultWorld(*o.Catalog, o.Region, o.ClusterName)
		o.World = &w
	}
	errs = append(errs, o.World.validate(*o.Catalog, o.Region), o.Script.validate())
	return o, errors.Join(errs...)
}
