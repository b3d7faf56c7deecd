package method

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/cluster"
)

// Ailing is what is wrong with a node, by the policies of the provider.
type Ailing struct {
	// Condition and Status are what the node says of itself.
	Condition corev1.NodeConditionType
	Status    corev1.ConditionStatus
	// Due is when the node has been like that for as long as it may.
	Due time.Time
}

// Ails returns what is wrong with the node; when several policies apply, the one that is due first.
func Ails(node *corev1.Node, policies []cloud.RepairPolicy) (worst Ailing, ok bool) {
	for _, policy := range policies {
		for _, c := range node.Status.Conditions {
			if c.Type != policy.ConditionType || c.Status != policy.ConditionStatus {
				continue
			}
			if due := c.LastTransitionTime.Add(policy.Toleration); !ok || due.Before(worst.Due) {
				worst, ok = Ailing{Condition: c.Type, Status: c.Status, Due: due}, true
			}
		}
	}
	return worst, ok
}

// Health counts the nodes of one pool, or of the cluster.
type Health struct{ Ailing, Total int }

// HealthOf counts the nodes of each pool, and, under the empty name, of all. Nodes that are just coming up
// are not ready either; they are no sign of trouble until they are due, and are not counted before.
func HealthOf(nodes []*cluster.Node, policies []cloud.RepairPolicy, now time.Time) map[string]Health {
	all := map[string]Health{}
	for _, node := range nodes {
		if node.Node == nil {
			continue
		}
		ailing, ails := Ails(node.Node, policies)
		if ails && !node.Initialized && now.Before(ailing.Due) {
			continue
		}
		for _, name := range []string{"", node.Pool} {
			h := all[name]
			h.Total++
			if ails {
				h.Ailing++
			}
			all[name] = h
			if node.Pool == "" {
				break
			}
		}
	}
	return all
}
