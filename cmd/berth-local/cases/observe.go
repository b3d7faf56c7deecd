package cases

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// kinds translates kinds of the API into those of the case files.
var kinds = map[string]string{"EC2NodeClass": "NodeClass"}

func keyOf(kind, name string) string {
	if short, ok := kinds[kind]; ok {
		return short // there is one class, which cases don't name
	}
	return kind + "/" + name
}

// living counts the NodeClaims that are still there.
func (o *observation) living() int {
	n := 0
	for _, c := range o.claims {
		if !c.gone {
			n++
		}
	}
	return n
}

// observe gathers all that expectations are about.
func (r *runner) observe(ctx context.Context) (*observation, error) {
	o := r.claimsAndPods()
	o.nodes, o.texts = map[string]nodeSeen{}, map[string]saidOf{}
	o.calls, o.instances = map[string]int{}, map[string]int{}
	nodes, err := r.cluster.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes.Items {
		o.nodes[n.Name] = nodeSeen{
			given: r.fresh[n.Name], pool: n.Labels[karpv1.LabelNodePool], instanceType: n.Labels[corev1.LabelInstanceTypeStable],
			zone: fromZones(n.Labels[corev1.LabelTopologyZone]),
		}
	}
	for _, call := range r.cluster.EC2.Calls() {
		if !call.Time.Before(r.begun) && call.Form().Get("DryRun") != "true" {
			o.calls[call.Action]++
		}
	}
	r.observeInstances(o)
	return o, r.observeTexts(ctx, o)
}

func (r *runner) observeInstances(o *observation) {
	claims := map[string]string{} // provider id to claim
	for _, c := range o.claims {
		claims[c.providerID] = c.name
	}
	for _, instance := range r.cluster.EC2.Instances() {
		if instance.State != "running" && instance.State != "pending" || instance.LaunchTime.Before(r.begun) {
			continue
		}
		owner := claims[instance.ProviderID()]
		if owner == "" {
			owner = instance.ID + " without a claim"
		}
		o.instances[owner]++
	}
}

// observeTexts gathers events and conditions by object.
func (r *runner) observeTexts(ctx context.Context, o *observation) error {
	say := func(key, reason, message string, events int) {
		said := o.texts[key]
		text := fromZones(reason + ": " + message)
		if !slices.Contains(said.texts, text) {
			said.texts = append(said.texts, text)
		}
		if said.events == nil {
			said.events = map[string]int{}
		}
		said.events[text] += events
		o.texts[key] = said
	}
	events, err := r.cluster.Kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list events: %w", err)
	}
	for _, e := range events.Items {
		n := int(max(e.Count, 1))
		if e.Series != nil {
			n = max(n, int(e.Series.Count))
		}
		say(keyOf(e.InvolvedObject.Kind, e.InvolvedObject.Name), e.Reason, e.Message, n)
	}
	conditions := func(kind, name string, list []metav1.Condition) {
		for _, c := range list {
			if c.Status != metav1.ConditionTrue || c.Message != "" {
				say(keyOf(kind, name), c.Type+" "+string(c.Status)+" "+c.Reason, c.Message, 0)
			}
		}
	}
	pools, err := r.cluster.Karpenter.KarpenterV1().NodePools().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list NodePools: %w", err)
	}
	for _, p := range pools.Items {
		conditions("NodePool", p.Name, p.Status.Conditions)
	}
	pods, err := r.cluster.Kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for _, p := range pods.Items {
		for _, c := range p.Status.Conditions {
			if c.Message != "" {
				say(keyOf("Pod", p.Name), c.Reason, c.Message, 0)
			}
		}
	}
	return nil
}
