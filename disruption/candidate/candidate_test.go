package candidate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/disruption/candidate"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

type change func(*corev1.Pod)

func makePod(changes ...change) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "a"}, Annotations: map[string]string{}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: now.Add(-10 * time.Minute)}},
	}
	for _, c := range changes {
		c(pod)
	}
	return pod
}

func ownedBy(kind string) change {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "o", Controller: new(true)}}
	}
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }
func finished(p *corev1.Pod)    { p.Status.Phase = corev1.PodSucceeded }

func annotated(key, value string) change {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

func started(ago time.Duration) change {
	return func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: now.Add(-ago)} }
}

func TestIsEmpty(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a pod of a Deployment is something":                 {pod: makePod(ownedBy("ReplicaSet"))},
		"a bare pod is something":                            {pod: makePod()},
		"DISR-002 daemons are nothing":                       {pod: makePod(ownedBy("DaemonSet")), want: true},
		"mirror pods are nothing":                            {pod: makePod(ownedBy("Node")), want: true},
		"mirror pods by annotation are nothing":              {pod: makePod(annotated(corev1.MirrorPodAnnotationKey, "x")), want: true},
		"finished pods are nothing":                          {pod: makePod(finished), want: true},
		"DISR-003 terminating pods of Deployments":           {pod: makePod(ownedBy("ReplicaSet"), terminating), want: true},
		"DISR-004 terminating pods of StatefulSets count":    {pod: makePod(ownedBy("StatefulSet"), terminating)},
		"DISR-005 pods with the lowest deletion cost":        {pod: makePod(annotated(karpv1.AnnotationPodDeletionCost, "-2147483647")), want: true},
		"a deletion cost that is no number does not count":   {pod: makePod(annotated(karpv1.AnnotationPodDeletionCost, "-9999999999999"))},
		"pods with a strongly negative priority are nothing": {pod: makePod(func(p *corev1.Pod) { p.Spec.Priority = new(int32(-2000000000)) }), want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, candidate.IsEmpty(&cluster.Node{Pods: []*corev1.Pod{tc.pod}}))
		})
	}
	require.True(t, candidate.IsEmpty(&cluster.Node{}))
}

func TestEvictionCost(t *testing.T) {
	t.Parallel()
	cost := func(deletion string, priority int32) float64 {
		return candidate.EvictionCost(makePod(annotated(karpv1.AnnotationPodDeletionCost, deletion), func(p *corev1.Pod) { p.Spec.Priority = &priority }))
	}
	require.InDelta(t, 1.0, cost("", 0), 0)
	require.InDelta(t, 2.0, cost("134217728", 0), 0)
	require.InDelta(t, 3.0, cost("134217728", 1<<25), 0)
	require.InDelta(t, 10.0, cost("2147483647", 2000000000), 0)
	require.InDelta(t, -10.0, cost("-2147483647", 0), 0)
	require.InDelta(t, 3.0, candidate.MoveCost(&cluster.Node{Pods: []*corev1.Pod{makePod(), makePod(), makePod(finished)}}), 0)
}

func TestProtect(t *testing.T) {
	t.Parallel()
	const key = karpv1.AnnotationDoNotDisrupt
	tests := map[string]struct {
		pod  *corev1.Pod
		want candidate.Protection
	}{
		"no annotation":                       {pod: makePod()},
		"DISR-023 true protects":              {pod: makePod(annotated(key, "true")), want: candidate.Protection{Active: true}},
		"true does not outlive the pod":       {pod: makePod(annotated(key, "true"), finished)},
		"true ends when the pod is deleted":   {pod: makePod(annotated(key, "true"), terminating)},
		"DISR-024 a duration that still runs": {pod: makePod(annotated(key, "30m")), want: candidate.Protection{Active: true, Until: now.Add(20 * time.Minute)}},
		"DISR-025 a duration that is over":    {pod: makePod(annotated(key, "30m"), started(31*time.Minute)), want: candidate.Protection{Until: now.Add(-time.Minute)}},
		"a duration is over at its end":       {pod: makePod(annotated(key, "10m")), want: candidate.Protection{Until: now}},
		"a duration before the pod starts":    {pod: makePod(annotated(key, "30m"), func(p *corev1.Pod) { p.Status.StartTime = nil }), want: candidate.Protection{Active: true}},
		"DISR-026 no time at all is ignored":  {pod: makePod(annotated(key, "0s")), want: candidate.Protection{Invalid: true}},
		"a negative duration is ignored":      {pod: makePod(annotated(key, "-1m")), want: candidate.Protection{Invalid: true}},
		"CORE-055 any other word is ignored":  {pod: makePod(annotated(key, "banana")), want: candidate.Protection{Invalid: true}},
		"false is ignored and reported":       {pod: makePod(annotated(key, "false")), want: candidate.Protection{Invalid: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, candidate.Protect(tc.pod, now))
		})
	}
}

func makeNode() *cluster.Node {
	return &cluster.Node{
		Name: "n", ClaimName: "c", Pool: "default", Claim: &karpv1.NodeClaim{}, Initialized: true, Ready: true,
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{karpv1.LabelNodePool: "default"}, Annotations: map[string]string{}}},
	}
}

func TestBlocked(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*cluster.Node)
		noPool bool
		want   string
	}{
		"a plain node is a candidate":            {change: func(*cluster.Node) {}},
		"one without a claim":                    {change: func(n *cluster.Node) { n.Claim = nil }, want: "no NodeClaim"},
		"a claim without a node":                 {change: func(n *cluster.Node) { n.Node = nil }, want: "associated node"},
		"one that is still starting":             {change: func(n *cluster.Node) { n.Initialized = false }, want: "isn't initialized"},
		"one that is hidden or tainted":          {change: func(n *cluster.Node) { n.Deleting = true }, want: "marked for deletion"},
		"one whose claim is being deleted":       {change: func(n *cluster.Node) { n.Claim.DeletionTimestamp = &metav1.Time{Time: now} }, want: "marked for deletion"},
		"DISR-077 one that a pod was promised":   {change: func(n *cluster.Node) { n.Promised = []*corev1.Pod{makePod()} }, want: "nominated"},
		"DISR-027 one with the annotation true":  {change: func(n *cluster.Node) { n.Node.Annotations[karpv1.AnnotationDoNotDisrupt] = "true" }, want: "annotation"},
		"DISR-028 one with the annotation false": {change: func(n *cluster.Node) { n.Node.Annotations[karpv1.AnnotationDoNotDisrupt] = "false" }},
		"durations do not count on nodes":        {change: func(n *cluster.Node) { n.Node.Annotations[karpv1.AnnotationDoNotDisrupt] = "1h" }},
		"one without the pool's label":           {change: func(n *cluster.Node) { n.Node.Labels = nil }, want: "required label"},
		"one whose pool is gone":                 {change: func(*cluster.Node) {}, noPool: true, want: "NodePool not found (NodePool=default)"},
		"a protected daemon counts": {
			change: func(n *cluster.Node) {
				n.Pods = []*corev1.Pod{makePod(ownedBy("DaemonSet"), annotated(karpv1.AnnotationDoNotDisrupt, "true"))}
			},
			want: "Pod has",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, pool := makeNode(), &karpv1.NodePool{}
			tc.change(node)
			if tc.noPool {
				pool = nil
			}
			got := candidate.Blocked(node, pool, nil, now)
			if tc.want == "" {
				require.Empty(t, got)
				return
			}
			require.Contains(t, got, tc.want)
		})
	}
}

func TestPodDisruptionBudgets(t *testing.T) {
	t.Parallel()
	pdb := func(name string, allowed int32, policy *policyv1.UnhealthyPodEvictionPolicyType, selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector, UnhealthyPodEvictionPolicy: policy},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
		}
	}
	app := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	broken := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	unready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	}
	tolerant := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	always := new(policyv1.AlwaysAllow)
	tests := map[string]struct {
		pdbs []*policyv1.PodDisruptionBudget
		pods []*corev1.Pod
		want string
	}{
		"one allowed disruption is enough for two pods":       {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 1, nil, app("a"))}, pods: []*corev1.Pod{makePod(), makePod()}},
		"DISR-029 none allowed":                               {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 0, nil, app("a"))}, pods: []*corev1.Pod{makePod()}, want: "Pdb prevents pod evictions (PodDisruptionBudget=ns/x)"},
		"DISR-030 two budgets on one pod":                     {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 1, nil, app("a")), pdb("y", 1, nil, &metav1.LabelSelector{})}, pods: []*corev1.Pod{makePod()}, want: "multiple PDBs (PDBs=ns/x,ns/y"},
		"DISR-031 unready pods under AlwaysAllow":             {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 0, always, app("a"))}, pods: []*corev1.Pod{makePod(unready)}},
		"unready pods without AlwaysAllow":                    {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 0, nil, app("a"))}, pods: []*corev1.Pod{makePod(unready)}, want: "Pdb prevents"},
		"ready pods under AlwaysAllow":                        {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 0, always, app("a"))}, pods: []*corev1.Pod{makePod()}, want: "Pdb prevents"},
		"daemons count":                                       {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 0, nil, app("a"))}, pods: []*corev1.Pod{makePod(ownedBy("DaemonSet"))}, want: "Pdb prevents"},
		"mirror pods are never evicted":                       {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 0, nil, app("a"))}, pods: []*corev1.Pod{makePod(ownedBy("Node"))}},
		"pods that tolerate the taint are never evicted":      {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 0, nil, app("a"))}, pods: []*corev1.Pod{makePod(tolerant)}},
		"finished pods are never evicted":                     {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 0, nil, app("a"))}, pods: []*corev1.Pod{makePod(finished)}},
		"budgets for other pods":                              {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 0, nil, app("b"))}, pods: []*corev1.Pod{makePod()}},
		"budgets without a selector match nothing":            {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 0, nil, nil)}, pods: []*corev1.Pod{makePod()}},
		"budgets with a selector that cannot be read protect": {pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 0, nil, broken)}, pods: []*corev1.Pod{makePod()}, want: "Pdb prevents"},
		"budgets of other namespaces": {
			pdbs: []*policyv1.PodDisruptionBudget{pdb("x", 0, nil, app("a"))}, pods: []*corev1.Pod{makePod(func(p *corev1.Pod) { p.Namespace = "else" })},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := candidate.BlockedByPods(tc.pods, candidate.NewLimits(tc.pdbs), now)
			if tc.want == "" {
				require.Empty(t, got)
				return
			}
			require.Contains(t, got, tc.want)
		})
	}
}

func TestIsConsolidatable(t *testing.T) {
	t.Parallel()
	type parts struct {
		claim *karpv1.NodeClaim
		pool  *karpv1.NodePool
	}
	tests := map[string]struct {
		change  func(parts)
		want    bool
		recheck time.Time
	}{
		"DISR-006 within the time since the last pod event": {change: func(p parts) { p.claim.Status.LastPodEventTime = metav1.NewTime(now) }, recheck: now.Add(5 * time.Minute)},
		"at the end of the time":                            {change: func(p parts) { p.claim.Status.LastPodEventTime = metav1.NewTime(now.Add(-5 * time.Minute)) }, want: true},
		"without pod events initialization counts":          {change: func(parts) {}, recheck: now.Add(4 * time.Minute)},
		"no wait at all":                                    {change: func(p parts) { p.pool.Spec.Disruption.ConsolidateAfter = karpv1.DurationOf(0) }, want: true},
		"DISR-007 Never":                                    {change: func(p parts) { p.pool.Spec.Disruption.ConsolidateAfter = karpv1.NeverElapses() }},
		"before initialization":                             {change: func(p parts) { p.claim.Status.Conditions[0].Status = metav1.ConditionUnknown }},
		"static pools":                                      {change: func(p parts) { p.pool.Spec.Replicas = new(int64(1)) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := parts{claim: &karpv1.NodeClaim{}, pool: &karpv1.NodePool{}}
			p.pool.Spec.Disruption.ConsolidateAfter = karpv1.DurationOf(5 * time.Minute)
			p.claim.Status.Conditions = []metav1.Condition{{Type: "Initialized", Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))}}
			tc.change(p)
			ok, recheck := candidate.IsConsolidatable(p.claim, p.pool, now)
			require.Equal(t, tc.want, ok)
			require.Equal(t, tc.recheck, recheck)
		})
	}
}
