// Package explain is `berth explain`: why a pod waits, why a node stays or goes, what a pool does, told from
// what the API server knows.
//
// Place in the flow: the command line calls it; it reads objects and events, applies the same checks as the
// disruption controller, and changes nothing.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/disruption/candidate"
	"github.com/berth-dev/berth/disruption/method"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned"
	"github.com/berth-dev/berth/provisioner/promise"
)

// NewCommand makes `berth explain`.
func NewCommand() *cobra.Command {
	var kubeconfig, contextName, namespace string
	cmd := &cobra.Command{
		Use:   "explain pod|node|nodeclaim|nodepool NAME",
		Short: "Tell why a pod waits, why a node stays or goes, what a pool does",
		Long: `Tell why a pod waits, why a node stays or goes, and what a NodeClaim or NodePool is up to, from the objects and
events that the API server has. Nothing is changed.`,
		Example: "  berth explain pod web-6f7d-x2x2x -n shop\n  berth explain node ip-10-0-1-7.ec2.internal\n  berth explain nodepool general",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := connect(kubeconfig, contextName)
			if err != nil {
				return err
			}
			return e.run(cmd.Context(), args[0], namespace, args[1], cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: KUBECONFIG, then ~/.kube/config)")
	cmd.Flags().StringVar(&contextName, "context", "", "context of the kubeconfig")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the pod")
	return cmd
}

// explainer reads the API.
type explainer struct {
	kube kubernetes.Interface
	ours versioned.Interface
	now  func() time.Time
}

func connect(kubeconfig, contextName string) (*explainer, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: contextName}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	ours, err := versioned.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return &explainer{kube, ours, time.Now}, nil
}

func (e *explainer) run(ctx context.Context, kind, namespace, name string, out io.Writer) error {
	var b strings.Builder
	var err error
	switch strings.ToLower(strings.TrimSuffix(kind, "s")) {
	case "pod", "po":
		err = e.pod(ctx, &b, namespace, name)
	case "node", "no":
		err = e.node(ctx, &b, name)
	case "nodeclaim":
		err = e.claim(ctx, &b, name)
	case "nodepool":
		err = e.pool(ctx, &b, name)
	default:
		return fmt.Errorf("kind: is %q, want pod, node, nodeclaim or nodepool", kind)
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, b.String())
	return err //nolint:wrapcheck // says what is wrong with the output
}

func (e *explainer) pod(ctx context.Context, b *strings.Builder, namespace, name string) error {
	pod, err := e.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	fmt.Fprintf(b, "Pod %s/%s, %s, %s old, schedulerName %s\n", namespace, name, pod.Status.Phase, e.age(pod.CreationTimestamp), pod.Spec.SchedulerName)
	switch {
	case pod.Spec.NodeName != "":
		fmt.Fprintf(b, "It runs on node %s.\n", pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		fmt.Fprintf(b, "It is held back by scheduling gate %s; nothing is bought for it before that is removed.\n", pod.Spec.SchedulingGates[0].Name)
	default:
		if err := e.waiting(ctx, b, pod); err != nil {
			return err
		}
	}
	return e.events(ctx, b, namespace, name, pod.UID)
}

// waiting tells what a pod waits for.
func (e *explainer) waiting(ctx context.Context, b *strings.Builder, pod *corev1.Pod) error {
	claims, err := e.ours.KarpenterV1().NodeClaims().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodeclaims: %w", err)
	}
	promised := false
	for i := range claims.Items {
		claim := &claims.Items[i]
		uids, err := promise.ParseAnnotation(claim.Annotations[karpv1.AnnotationPromises])
		if err == nil && slices.Contains(uids, pod.UID) {
			promised = true
			fmt.Fprintf(b, "NodeClaim %s was bought for it: %s.\n", claim.Name, e.stage(claim))
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			fmt.Fprintf(b, "The scheduler says: %s\n", c.Message)
		}
	}
	if !promised && pod.Status.NominatedNodeName != "" {
		fmt.Fprintf(b, "It is nominated to node %s.\n", pod.Status.NominatedNodeName)
	}
	return nil
}

// stage says how far a claim has come.
func (e *explainer) stage(claim *karpv1.NodeClaim) string {
	what := strings.TrimSpace(claim.Labels[karpv1.LabelCapacityType] + " " + claim.Labels[corev1.LabelInstanceTypeStable] + " " + claim.Labels[corev1.LabelTopologyZone])
	switch {
	case claim.DeletionTimestamp != nil:
		return "it is being deleted"
	case meta.IsStatusConditionTrue(claim.Status.Conditions, karpv1.ConditionInitialized):
		return fmt.Sprintf("%s, ready as node %s", what, claim.Status.NodeName)
	case meta.IsStatusConditionTrue(claim.Status.Conditions, karpv1.ConditionRegistered):
		return fmt.Sprintf("%s, node %s has registered and is not initialized yet%s", what, claim.Status.NodeName, because(claim, karpv1.ConditionInitialized))
	case meta.IsStatusConditionTrue(claim.Status.Conditions, karpv1.ConditionLaunched):
		return fmt.Sprintf("%s, launched %s ago, its node has not registered yet", what, e.age(claim.CreationTimestamp))
	default:
		return "not launched yet" + because(claim, karpv1.ConditionLaunched)
	}
}

func because(claim *karpv1.NodeClaim, kind string) string {
	c := meta.FindStatusCondition(claim.Status.Conditions, kind)
	if c == nil || c.Message == "" {
		return ""
	}
	return " (" + c.Reason + ": " + c.Message + ")"
}

func (e *explainer) node(ctx context.Context, b *strings.Builder, name string) error {
	node, err := e.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node %s: %w", name, err)
	}
	fmt.Fprintf(b, "Node %s, %s, %s %s in %s\n", name, e.age(node.CreationTimestamp), node.Labels[karpv1.LabelCapacityType], node.Labels[corev1.LabelInstanceTypeStable], node.Labels[corev1.LabelTopologyZone])
	claims, err := e.ours.KarpenterV1().NodeClaims().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodeclaims: %w", err)
	}
	i := slices.IndexFunc(claims.Items, func(c karpv1.NodeClaim) bool {
		return node.Spec.ProviderID != "" && c.Status.ProviderID == node.Spec.ProviderID
	})
	if i < 0 {
		b.WriteString("No NodeClaim owns it: Berth leaves it alone.\n")
		return e.events(ctx, b, "", name, node.UID)
	}
	claim := &claims.Items[i]
	fmt.Fprintf(b, "NodeClaim %s of NodePool %s: %s.\n", claim.Name, claim.Labels[karpv1.LabelNodePool], e.stage(claim))
	if err := e.fate(ctx, b, node, claim); err != nil {
		return err
	}
	return e.events(ctx, b, "", name, node.UID)
}

// fate says whether the node may go, and when it will.
func (e *explainer) fate(ctx context.Context, b *strings.Builder, node *corev1.Node, claim *karpv1.NodeClaim) error {
	if c := meta.FindStatusCondition(claim.Status.Conditions, karpv1.ConditionDisruptionReason); c != nil {
		fmt.Fprintf(b, "It was chosen to go: %s.\n", c.Reason)
	}
	if c := meta.FindStatusCondition(claim.Status.Conditions, karpv1.ConditionDrifted); c != nil && c.Status == metav1.ConditionTrue {
		fmt.Fprintf(b, "It has drifted: %s, %s ago.\n", c.Reason, e.age(c.LastTransitionTime))
	}
	if early, deadline, ok := method.Expiry(claim); ok {
		fmt.Fprintf(b, "It expires at %s, and may be replaced from %s on.\n", deadline.UTC().Format(time.RFC3339), early.UTC().Format(time.RFC3339))
	}
	pods, err := e.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String()})
	if err != nil {
		return fmt.Errorf("list pods of node %s: %w", node.Name, err)
	}
	budgets, err := e.kube.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list poddisruptionbudgets: %w", err)
	}
	pool, err := e.ours.KarpenterV1().NodePools().Get(ctx, claim.Labels[karpv1.LabelNodePool], metav1.GetOptions{})
	if err != nil {
		pool = nil // the check says so
	}
	view := &cluster.Node{
		Name: node.Name, ClaimName: claim.Name, Pool: claim.Labels[karpv1.LabelNodePool], Node: node, Claim: claim, Labels: node.Labels,
		Initialized: node.Labels[karpv1.LabelInitialized] == karpv1.ValueTrue,
	}
	var list []*policyv1.PodDisruptionBudget
	for i := range budgets.Items {
		list = append(list, &budgets.Items[i])
	}
	movable := 0
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Spec.NodeName == node.Name {
			view.Pods = append(view.Pods, pod)
			if candidate.IsReschedulable(pod) {
				movable++
			}
		}
	}
	switch why := candidate.Blocked(view, pool, candidate.NewLimits(list), e.now()); {
	case why != "":
		fmt.Fprintf(b, "It is kept: %s.\n", why)
	case candidate.IsEmpty(view):
		b.WriteString("Nothing of worth runs on it.\n")
	default:
		fmt.Fprintf(b, "Nothing keeps it but its %d pods: it goes when they would be cheaper elsewhere.\n", movable)
	}
	if pool != nil {
		if quiet, recheck := candidate.IsConsolidatable(claim, pool, e.now()); !quiet && !recheck.IsZero() {
			fmt.Fprintf(b, "Pods came or went lately: consolidation leaves it alone until %s.\n", recheck.UTC().Format(time.RFC3339))
		} else if !quiet {
			fmt.Fprintf(b, "Consolidation leaves it alone: consolidateAfter of NodePool %s is Never, or it is not initialized.\n", pool.Name)
		}
	}
	return nil
}

func (e *explainer) claim(ctx context.Context, b *strings.Builder, name string) error {
	claim, err := e.ours.KarpenterV1().NodeClaims().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get nodeclaim %s: %w", name, err)
	}
	fmt.Fprintf(b, "NodeClaim %s of NodePool %s, %s old: %s.\n", name, claim.Labels[karpv1.LabelNodePool], e.age(claim.CreationTimestamp), e.stage(claim))
	if uids, err := promise.ParseAnnotation(claim.Annotations[karpv1.AnnotationPromises]); err == nil && len(uids) > 0 {
		fmt.Fprintf(b, "It was bought for %d pods.\n", len(uids))
	}
	conditions(b, claim.Status.Conditions)
	return e.events(ctx, b, "", name, claim.UID)
}

func (e *explainer) pool(ctx context.Context, b *strings.Builder, name string) error {
	pool, err := e.ours.KarpenterV1().NodePools().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get nodepool %s: %w", name, err)
	}
	fmt.Fprintf(b, "NodePool %s, %d nodes", name, pool.Status.Nodes)
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		used, limit := pool.Status.Resources[resource], pool.Spec.Limits[resource]
		fmt.Fprintf(b, ", %s %s", resource, used.String())
		if !limit.IsZero() {
			fmt.Fprintf(b, " of %s", limit.String())
		}
	}
	b.WriteString("\n")
	conditions(b, pool.Status.Conditions)
	return e.events(ctx, b, "", name, pool.UID)
}

// conditions lists those that are not True with what they say, then names the others.
func conditions(b *strings.Builder, list []metav1.Condition) {
	var good []string
	for _, c := range list {
		if c.Status == metav1.ConditionTrue {
			good = append(good, c.Type)
			continue
		}
		fmt.Fprintf(b, "%s is %s: %s\n", c.Type, c.Status, strings.TrimSpace(c.Reason+" "+c.Message))
	}
	if len(good) > 0 {
		fmt.Fprintf(b, "True: %s\n", strings.Join(good, ", "))
	}
}

// shownEvents is how many of the newest events are told.
const shownEvents = 15

func (e *explainer) events(ctx context.Context, b *strings.Builder, namespace, name string, uid types.UID) error {
	list, err := e.kube.CoreV1().Events(cmp.Or(namespace, metav1.NamespaceAll)).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.name", name).String()})
	if err != nil {
		return fmt.Errorf("list events of %s: %w", name, err)
	}
	mine := slices.DeleteFunc(list.Items, func(ev corev1.Event) bool {
		return ev.InvolvedObject.UID != uid && string(ev.InvolvedObject.UID) != name
	})
	last := func(ev *corev1.Event) time.Time {
		at := ev.CreationTimestamp.Time
		for _, t := range []time.Time{ev.LastTimestamp.Time, ev.EventTime.Time} {
			if t.After(at) {
				at = t
			}
		}
		if ev.Series != nil && ev.Series.LastObservedTime.After(at) {
			at = ev.Series.LastObservedTime.Time
		}
		return at
	}
	slices.SortStableFunc(mine, func(x, y corev1.Event) int { return last(&x).Compare(last(&y)) })
	if len(mine) == 0 {
		b.WriteString("No events are left about it.\n")
		return nil
	}
	b.WriteString("Events, newest last:\n")
	for i := max(len(mine)-shownEvents, 0); i < len(mine); i++ {
		ev := &mine[i]
		fmt.Fprintf(b, "  %4s ago  %-8s%s: %s\n", duration.HumanDuration(e.now().Sub(last(ev))), ev.Type, ev.Reason, ev.Message)
	}
	return nil
}

func (e *explainer) age(t metav1.Time) string { return duration.HumanDuration(e.now().Sub(t.Time)) }
