package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	leasePeriod  = 10 * time.Second
	leaseSeconds = int32(40)
	ebsDriver    = "ebs.csi.aws.com"
	ebsVolumes   = int32(25)
	ebsZone      = "topology.ebs.csi.aws.com/zone"
)

func mustQuantity(text string) resource.Quantity { return resource.MustParse(text) }

// syncNode takes the Node of a machine one step further: registered, Ready, devices, leases.
func (k *Kubelets) syncNode(ctx context.Context, name string) (time.Duration, error) {
	m := k.machine(name)
	if m == nil {
		return 0, nil
	}
	now := k.Clock.Now()
	if wait := m.bootAt.Sub(now); wait > 0 {
		return wait, nil
	}
	if k.registered(m).IsZero() {
		if err := k.registerNode(ctx, m); err != nil {
			return 0, err
		}
		k.mu.Lock()
		m.registered = now
		k.mu.Unlock()
		if err := k.renew(ctx, m); err != nil {
			return 0, err
		}
		k.queuePods(name)
	}
	age := now.Sub(k.registered(m))
	ready, devices := age >= m.ReadyDelay, age >= m.ReadyDelay+m.DeviceDelay
	if err := k.reportNode(ctx, m, ready, devices); err != nil {
		return 0, err
	}
	if now.Sub(m.renewed) >= leasePeriod {
		if err := k.renew(ctx, m); err != nil {
			return 0, err
		}
	}
	switch {
	case !ready:
		return m.ReadyDelay - age, nil
	case !devices:
		return m.ReadyDelay + m.DeviceDelay - age, nil
	default:
		return leasePeriod, nil
	}
}

// registered is when the machine's Node was made, zero before.
func (k *Kubelets) registered(m *machine) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return m.registered
}

// registerNode creates the Node, or takes over what has its name: another machine's Node is replaced.
func (k *Kubelets) registerNode(ctx context.Context, m *machine) error {
	nodes := k.Kube.CoreV1().Nodes()
	_, err := nodes.Create(ctx, k.newNode(m), metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	have, err := nodes.Get(ctx, m.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if have.Spec.ProviderID == m.ProviderID {
		return nil // this kubelet has restarted
	}
	if err := nodes.Delete(ctx, m.NodeName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return fmt.Errorf("node %s belongs to %s; it is being replaced", m.NodeName, have.Spec.ProviderID)
}

func (k *Kubelets) newNode(m *machine) *corev1.Node {
	labels := map[string]string{}
	maps.Copy(labels, m.Labels)
	for key, value := range map[string]string{
		corev1.LabelHostname: m.NodeName, corev1.LabelArchStable: m.Arch, corev1.LabelOSStable: m.OS,
		"beta.kubernetes.io/arch": m.Arch, "beta.kubernetes.io/os": m.OS,
		corev1.LabelInstanceTypeStable: m.InstanceType, corev1.LabelTopologyZone: m.Zone, corev1.LabelTopologyRegion: m.Region,
		"topology.k8s.aws/zone-id": m.ZoneID,
	} {
		if value != "" {
			labels[key] = value
		}
	}
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.NodeName, Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: m.ProviderID, Taints: append(slices.Clone(m.Taints), notReady)},
		Status:     k.nodeStatus(m, false, false),
	}
}

func (k *Kubelets) nodeStatus(m *machine, ready, devices bool) corev1.NodeStatus {
	now := metav1.NewTime(k.Clock.Now())
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	readiness := condition(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready")
	if ready {
		readiness = condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	}
	return corev1.NodeStatus{
		Capacity: withDevices(m.Capacity, devices), Allocatable: withDevices(m.Allocatable, devices),
		Conditions: []corev1.NodeCondition{
			condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
			condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
			condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
			readiness,
		},
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: m.InternalIP}, {Type: corev1.NodeHostName, Address: m.NodeName},
		},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: k.options.Version, ContainerRuntimeVersion: "containerd://2.1.4", OSImage: "simulated",
			OperatingSystem: m.OS, Architecture: m.Arch, KernelVersion: "6.12", MachineID: m.ID, SystemUUID: m.ID, BootID: m.ID,
		},
	}
}

// withDevices reports extended resources as zero until their device plugins are there.
func withDevices(list corev1.ResourceList, there bool) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, quantity := range list {
		if !there && isExtended(name) {
			quantity = resource.Quantity{}
		}
		out[name] = quantity
	}
	return out
}

func isExtended(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }

// reportNode writes the status when it says something new, and the CSINode once the node is Ready.
func (k *Kubelets) reportNode(ctx context.Context, m *machine, ready, devices bool) error {
	nodes := k.Kube.CoreV1().Nodes()
	have, err := nodes.Get(ctx, m.NodeName, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return nil // deleted by somebody; a kubelet does not register again while it runs
	}
	if err != nil || have.Spec.ProviderID != m.ProviderID {
		return err
	}
	status := k.nodeStatus(m, ready, devices)
	keepForeign(status.Capacity, have.Status.Capacity)
	keepForeign(status.Allocatable, have.Status.Allocatable)
	if !sameReport(have.Status, status) {
		updated := have.DeepCopy()
		updated.Status.Capacity, updated.Status.Allocatable = status.Capacity, status.Allocatable
		for _, c := range status.Conditions {
			setCondition(&updated.Status.Conditions, c)
		}
		if _, err := nodes.UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if !ready || m.published {
		return nil
	}
	err = k.publishDriver(ctx, m, have)
	m.published = err == nil
	return err
}

// publishDriver does what the EBS driver and its registration with the kubelet do: the CSINode, and the
// label that volumes ask for.
func (k *Kubelets) publishDriver(ctx context.Context, m *machine, node *corev1.Node) error {
	count := ebsVolumes
	_, err := k.Kube.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: m.NodeName, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: ebsDriver, NodeID: m.ID, TopologyKeys: []string{ebsZone}, Allocatable: &storagev1.VolumeNodeResources{Count: &count},
		}}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if node.Labels[ebsZone] == m.Zone {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, ebsZone, m.Zone)
	_, err = k.Kube.CoreV1().Nodes().Patch(ctx, m.NodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// keepForeign leaves extended resources that somebody else has put on the node as they are.
func keepForeign(report, have corev1.ResourceList) {
	for name, quantity := range have {
		if _, ours := report[name]; !ours && isExtended(name) {
			report[name] = quantity
		}
	}
}

func sameReport(a, b corev1.NodeStatus) bool {
	equal := func(x, y corev1.ResourceList) bool {
		return maps.EqualFunc(x, y, func(p, q resource.Quantity) bool { return p.Cmp(q) == 0 })
	}
	return equal(a.Capacity, b.Capacity) && equal(a.Allocatable, b.Allocatable) && readyStatus(a) == readyStatus(b)
}

func readyStatus(status corev1.NodeStatus) corev1.ConditionStatus {
	for _, c := range status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func setCondition(conditions *[]corev1.NodeCondition, c corev1.NodeCondition) {
	for i := range *conditions {
		if have := &(*conditions)[i]; have.Type == c.Type {
			if have.Status == c.Status {
				c.LastTransitionTime = have.LastTransitionTime
			}
			*have = c
			return
		}
	}
	*conditions = append(*conditions, c)
}

// renew keeps the node's lease, by which the control plane knows that the kubelet lives.
func (k *Kubelets) renew(ctx context.Context, m *machine) error {
	leases := k.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now, seconds := metav1.NewMicroTime(k.Clock.Now()), leaseSeconds
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: m.NodeName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &m.NodeName, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	_, err := leases.Create(ctx, lease, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		have, getErr := leases.Get(ctx, m.NodeName, metav1.GetOptions{})
		if getErr != nil {
			return getErr
		}
		have.Spec = lease.Spec
		_, err = leases.Update(ctx, have, metav1.UpdateOptions{})
	}
	if err == nil {
		m.renewed = k.Clock.Now()
	}
	return err
}
