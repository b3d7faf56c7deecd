package solver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// refusal is a disagreement with the placement that it forbids.
type refusal struct {
	denial
	Disagreement
}

// confirm asks the filters about every placement, in the order of the plan, and takes the refused ones
// out of it.
func (s *solve) confirm(ctx context.Context, fit Fit, plan *Plan) ([]refusal, error) {
	if len(plan.Existing)+len(plan.Claims) == 0 {
		return nil, nil
	}
	trial, err := fit.Open(ctx, s.problem.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("open a trial of the scheduler's filters: %w", err)
	}
	defer trial.Close()
	keys := map[*corev1.Pod]string{}
	for _, c := range s.classes {
		for _, pod := range c.pods {
			keys[pod] = c.key
		}
	}
	var out []refusal
	refuse := func(pod *corev1.Pod, target string, v Verdict) {
		out = append(out, refusal{denial{keys[pod], target}, Disagreement{Pod: pod, Target: target, Plugin: v.Plugin, Reason: v.Reason}})
		plan.Unfit = append(plan.Unfit, Unfit{Pod: pod, Reasons: []PoolReason{{Reason: fmt.Sprintf("plugin %s refuses it on %s: %s", v.Plugin, target, v.Reason)}}})
	}
	existing := plan.Existing[:0:0]
	for _, placement := range plan.Existing {
		verdict, err := trial.Place(ctx, placement.Pod, placement.Node.Key())
		if err != nil {
			return nil, fmt.Errorf("ask the filters about pod %s/%s: %w", placement.Pod.Namespace, placement.Pod.Name, err)
		}
		if verdict.Fits() {
			existing = append(existing, placement)
			continue
		}
		refuse(placement.Pod, placement.Node.Key(), verdict)
	}
	plan.Existing = existing
	claims := plan.Claims[:0:0]
	for i, claim := range plan.Claims {
		kept, refused, err := s.confirmClaim(ctx, trial, s.opened[i], claim)
		if err != nil {
			return nil, err
		}
		for _, r := range refused {
			refuse(r.Pod, targetOf(s.opened[i]), Verdict{Plugin: r.Plugin, Reason: r.Reason})
		}
		if len(kept.Pods) > 0 {
			claims = append(claims, kept)
		}
	}
	plan.Claims = claims
	return out, nil
}

// confirmClaim asks about the pods of one claim on the node that it would become.
func (s *solve) confirmClaim(ctx context.Context, trial Trial, o *openClaim, claim Claim) (Claim, []Disagreement, error) {
	node, _ := virtualNode(o.id, o.pool, claim)
	if err := trial.AddNode(ctx, node, o.chosen.daemons); err != nil {
		return claim, nil, fmt.Errorf("add planned node %s to the trial: %w", o.id, err)
	}
	var refused []Disagreement
	pods := claim.Pods[:0:0]
	for _, pod := range claim.Pods {
		verdict, err := trial.Place(ctx, pod, node.Name)
		if err != nil {
			return claim, nil, fmt.Errorf("ask the filters about pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		if verdict.Fits() {
			pods = append(pods, pod)
			continue
		}
		refused = append(refused, Disagreement{Pod: pod, Plugin: verdict.Plugin, Reason: verdict.Reason})
	}
	if len(pods) == 0 {
		trial.RemoveNode(node.Name)
	}
	claim.Pods = pods
	return claim, refused, nil
}

// unconfirmed turns a plan whose confirmation broke down into one that does nothing: the pods ask again.
func unconfirmed(plan Plan, err error) Plan {
	reasons := []PoolReason{{Reason: "the scheduler's filters could not be asked: " + err.Error()}}
	for _, placement := range plan.Existing {
		plan.Unfit = append(plan.Unfit, Unfit{Pod: placement.Pod, Reasons: reasons})
	}
	for _, claim := range plan.Claims {
		for _, pod := range claim.Pods {
			plan.Unfit = append(plan.Unfit, Unfit{Pod: pod, Reasons: reasons})
		}
	}
	plan.Existing, plan.Claims = nil, nil
	return plan
}

func sortDisagreements(ds []Disagreement) {
	slices.SortFunc(ds, func(a, b Disagreement) int {
		return cmp.Or(strings.Compare(a.Pod.Namespace, b.Pod.Namespace), strings.Compare(a.Pod.Name, b.Pod.Name), strings.Compare(a.Target, b.Target))
	})
}
