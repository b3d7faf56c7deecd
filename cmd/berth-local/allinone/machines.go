package allinone

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/cmd/berth-local/kubelet"
	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/aws/facts"
)

// machineEvents turns what happens to simulated instances into what happens to machines with a
// kubelet, until ctx ends. An instance whose user data no kubelet can start from never joins, as in
// reality; the log says why.
func machineEvents(ctx context.Context, instances <-chan ec2sim.InstanceEvent, catalog facts.Catalog) <-chan kubelet.Event {
	logger := klog.FromContext(ctx)
	out := make(chan kubelet.Event)
	go func() {
		defer close(out)
		for event := range instances {
			machine, err := machineOf(event.Instance, catalog)
			if err != nil && event.Kind == ec2sim.Running {
				logger.Error(err, "Instance boots but its kubelet cannot join", "instance", event.Instance.ID)
				continue
			}
			machine.BootDelay = max(0, event.Instance.BootAt.Sub(event.Instance.LaunchTime))
			machine.ReadyDelay = readyDelay
			select {
			case out <- kubelet.Event{Gone: event.Kind == ec2sim.Gone, Machine: machine}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// machineOf describes the instance's kubelet: what the user data says, on the true machine.
func machineOf(instance ec2sim.Instance, catalog facts.Catalog) (kubelet.Machine, error) {
	machine := kubelet.Machine{
		ID: instance.ID, ProviderID: instance.ProviderID(), NodeName: instance.PrivateDNSName, InternalIP: instance.PrivateIP,
		Zone: instance.Zone, ZoneID: instance.ZoneID, Region: Region, InstanceType: instance.Type, Arch: instance.Arch, OS: "linux",
	}
	boot, err := parseUserData(instance.UserData)
	if err != nil {
		return machine, err
	}
	if boot.cluster != ClusterName {
		return machine, &otherClusterError{instance.ID, boot.cluster, ClusterName}
	}
	machine.Labels, machine.Taints = boot.labels, boot.taints
	if t, ok := catalog.Lookup(instance.Type); ok {
		settings := ec2sim.KubeletSettings{MaxPods: int(boot.maxPods), EFA: instance.EFAInterfaces, RootGiB: instance.RootGiB["/dev/xvda"]}
		machine.Capacity, machine.Allocatable = settings.Resources(t)
	}
	return machine, nil
}

// otherClusterError says that an instance's user data joins another cluster.
type otherClusterError struct{ instance, got, want string }

func (e *otherClusterError) Error() string {
	return "user data of " + e.instance + " joins cluster " + e.got + ", this one is " + e.want
}
