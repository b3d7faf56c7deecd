package solver

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
)

// PreferencePolicy says what becomes of what pods prefer: preferred node and pod affinity, preferred
// anti-affinity and ScheduleAnyway spreads.
type PreferencePolicy string

const (
	// Guide lets preferences choose among what costs no further node. It is what "" means.
	Guide PreferencePolicy = "Guide"
	// Respect demands them, and drops them one by one for pods that fit nowhere otherwise.
	Respect PreferencePolicy = "Respect"
	// Ignore plans as if there were none.
	Ignore PreferencePolicy = "Ignore"
)

// recast is a problem whose pods carry their preferences in another form, with the way back.
type recast struct {
	problem  Problem
	original map[*corev1.Pod]*corev1.Pod
}

// recastFor puts the problem into the form that the policy asks for; with Guide it stays as it is.
func recastFor(ctx context.Context, p Problem) recast {
	switch p.Preferences {
	case Ignore:
		return recastPods(p, func(pod *corev1.Pod) *corev1.Pod { return withPreferences(pod, p.Pools, math32) })
	case Respect:
		return respected(ctx, p)
	default:
		return recast{problem: p}
	}
}

// math32 is more relaxation steps than any pod has.
const math32 = 1<<31 - 1

// respected finds how many preferences of each pod can be demanded: all at first, and one less each time
// for pods that fit nowhere. The order in which they are dropped is that of provisioning.md 5.7.
func respected(ctx context.Context, p Problem) recast {
	steps := map[types.UID]int{}
	most := 0
	for _, pod := range p.Pods {
		most = max(most, preferences(pod, p.Pools))
	}
	strict := p
	strict.Pools = hardened(p.Pools)
	for round := 0; ; round++ {
		r := recastPods(strict, func(pod *corev1.Pod) *corev1.Pod { return withPreferences(pod, p.Pools, steps[pod.UID]) })
		if round >= most || ctx.Err() != nil {
			return r
		}
		relaxed := false
		plan := newGround(r.problem).best(ctx, newLessons()).plan
		for _, u := range plan.Unfit {
			pod := r.back(u.Pod)
			if steps[pod.UID] < preferences(pod, p.Pools) {
				steps[pod.UID]++
				relaxed = true
			}
		}
		if !relaxed {
			return r
		}
	}
}

// hardened turns PreferNoSchedule taints into ones that keep pods off.
func hardened(pools []Pool) []Pool {
	out := slices.Clone(pools)
	for i, p := range pools {
		if !prefersNot(p.NodePool) {
			continue
		}
		out[i].NodePool = p.NodePool.DeepCopy()
		for j := range out[i].NodePool.Spec.Template.Spec.Taints {
			out[i].NodePool.Spec.Template.Spec.Taints[j].Effect = strict(p.NodePool.Spec.Template.Spec.Taints[j].Effect)
		}
	}
	return out
}

func strict(effect corev1.TaintEffect) corev1.TaintEffect {
	if effect == corev1.TaintEffectPreferNoSchedule {
		return corev1.TaintEffectNoSchedule
	}
	return effect
}

func prefersNot(np *karpv1.NodePool) bool {
	return slices.ContainsFunc(np.Spec.Template.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule })
}

func recastPods(p Problem, change func(*corev1.Pod) *corev1.Pod) recast {
	r := recast{problem: p, original: make(map[*corev1.Pod]*corev1.Pod, len(p.Pods))}
	r.problem.Pods = make([]*corev1.Pod, len(p.Pods))
	for i, pod := range p.Pods {
		r.problem.Pods[i] = change(pod)
		r.original[r.problem.Pods[i]] = pod
	}
	return r
}

func (r recast) back(pod *corev1.Pod) *corev1.Pod {
	if original, ok := r.original[pod]; ok {
		return original
	}
	return pod
}

// restore puts the pods as they were given into the plan.
func (r recast) restore(plan Plan) Plan {
	if r.original == nil {
		return plan
	}
	for i := range plan.Claims {
		pods := slices.Clone(plan.Claims[i].Pods)
		for j := range pods {
			pods[j] = r.back(pods[j])
		}
		plan.Claims[i].Pods = pods
	}
	for i := range plan.Existing {
		plan.Existing[i].Pod = r.back(plan.Existing[i].Pod)
	}
	for i := range plan.Unfit {
		plan.Unfit[i].Pod = r.back(plan.Unfit[i].Pod)
	}
	for i := range plan.Disagreements {
		plan.Disagreements[i].Pod = r.back(plan.Disagreements[i].Pod)
	}
	return plan
}

// fit asks about the pods as they were given: the filters know demands only.
func (r recast) fit(fit Fit) Fit {
	if fit == nil || r.original == nil {
		return fit
	}
	return recastFit{fit, r}
}

type recastFit struct {
	Fit
	recast recast
}

func (f recastFit) Open(ctx context.Context, snapshot *cluster.Snapshot) (Trial, error) {
	trial, err := f.Fit.Open(ctx, snapshot)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it was doing
	}
	return recastTrial{trial, f.recast}, nil
}

type recastTrial struct {
	Trial
	recast recast
}

func (t recastTrial) Place(ctx context.Context, pod *corev1.Pod, node string) (Verdict, error) {
	return t.Trial.Place(ctx, t.recast.back(pod), node) //nolint:wrapcheck // the caller says what it was doing
}

// preferences counts the steps in which the pod's preferences can be dropped.
func preferences(pod *corev1.Pod, pools []Pool) int {
	n := 0
	if a := pod.Spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			n += len(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			n += len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.NodeAffinity != nil {
			n += len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	for _, s := range pod.Spec.TopologySpreadConstraints {
		if s.WhenUnsatisfiable == corev1.ScheduleAnyway {
			n++
		}
	}
	if slices.ContainsFunc(pools, func(p Pool) bool { return prefersNot(p.NodePool) }) {
		n++
	}
	return n
}

// withPreferences returns a copy of the pod that demands what it prefers, after the first steps of
// dropping. Dropped preferences are gone.
func withPreferences(pod *corev1.Pod, pools []Pool, steps int) *corev1.Pod {
	out := *pod
	out.Spec.Affinity = pod.Spec.Affinity.DeepCopy()
	if a := out.Spec.Affinity; a != nil {
		if pa := a.PodAffinity; pa != nil {
			kept := heaviest(&steps, pa.PreferredDuringSchedulingIgnoredDuringExecution, func(t corev1.WeightedPodAffinityTerm) int32 { return t.Weight })
			for _, t := range kept {
				pa.RequiredDuringSchedulingIgnoredDuringExecution = append(pa.RequiredDuringSchedulingIgnoredDuringExecution, t.PodAffinityTerm)
			}
			pa.PreferredDuringSchedulingIgnoredDuringExecution = nil
		}
		if pa := a.PodAntiAffinity; pa != nil {
			kept := heaviest(&steps, pa.PreferredDuringSchedulingIgnoredDuringExecution, func(t corev1.WeightedPodAffinityTerm) int32 { return t.Weight })
			for _, t := range kept {
				pa.RequiredDuringSchedulingIgnoredDuringExecution = append(pa.RequiredDuringSchedulingIgnoredDuringExecution, t.PodAffinityTerm)
			}
			pa.PreferredDuringSchedulingIgnoredDuringExecution = nil
		}
		if na := a.NodeAffinity; na != nil {
			kept := heaviest(&steps, na.PreferredDuringSchedulingIgnoredDuringExecution, func(t corev1.PreferredSchedulingTerm) int32 { return t.Weight })
			if len(kept) > 0 { // only the heaviest one that is left is in force
				demand(na, kept[0].Preference)
			}
			na.PreferredDuringSchedulingIgnoredDuringExecution = nil
		}
	}
	out.Spec.TopologySpreadConstraints = nil
	for _, s := range pod.Spec.TopologySpreadConstraints {
		if s.WhenUnsatisfiable == corev1.ScheduleAnyway {
			if steps > 0 {
				steps--
				continue
			}
			s.WhenUnsatisfiable = corev1.DoNotSchedule
		}
		out.Spec.TopologySpreadConstraints = append(out.Spec.TopologySpreadConstraints, s)
	}
	if steps > 0 {
		out.Spec.Tolerations = append(slices.Clip(out.Spec.Tolerations), softTolerations(pools)...)
	}
	return &out
}

// heaviest drops the first steps of the terms, heaviest first, and returns the rest in that order.
func heaviest[T any](steps *int, terms []T, weight func(T) int32) []T {
	terms = slices.Clone(terms)
	slices.SortStableFunc(terms, func(a, b T) int { return cmp.Compare(weight(b), weight(a)) })
	dropped := min(*steps, len(terms))
	*steps -= dropped
	return terms[dropped:]
}

// demand adds the preference to every alternative of the required node affinity.
func demand(na *corev1.NodeAffinity, preference corev1.NodeSelectorTerm) {
	if na.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		na.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	terms := na.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		terms[i].MatchExpressions = append(terms[i].MatchExpressions, preference.MatchExpressions...)
		terms[i].MatchFields = append(terms[i].MatchFields, preference.MatchFields...)
	}
}

// softTolerations tolerate the PreferNoSchedule taints of the pools, which hardened made into NoSchedule.
func softTolerations(pools []Pool) []corev1.Toleration {
	var out []corev1.Toleration
	for _, p := range pools {
		for _, t := range p.NodePool.Spec.Template.Spec.Taints {
			if t.Effect == corev1.TaintEffectPreferNoSchedule {
				out = append(out, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: corev1.TaintEffectNoSchedule})
			}
		}
	}
	return out
}
