package overlay

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/provisioner/api/karpenter/v1alpha1"
	"github.com/berth-dev/berth/provisioner/condition"
)

// dependents of a NodeOverlay's Ready condition.
var dependents = []string{v1alpha1.ConditionValidationSucceeded}

// writeStatus writes the verdict on one overlay when it is not what its status says already.
func (c *Controller) writeStatus(ctx context.Context, o *v1alpha1.NodeOverlay, fault error, conflict *Conflict) error {
	overlays := c.Karpenter.KarpenterV1alpha1().NodeOverlays()
	judged := o.Generation
	for attempt := 0; ; attempt++ {
		changed := o.DeepCopy()
		c.assess(changed, fault, conflict)
		if equality.Semantic.DeepEqual(o.Status, changed.Status) {
			return nil
		}
		updated, err := overlays.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		switch {
		case err == nil:
			c.report(o, updated)
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || attempt == 3:
			return fmt.Errorf("write status of nodeoverlay %s: %w", changed.Name, err)
		}
		if o, err = overlays.Get(ctx, changed.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("get nodeoverlay %s: %w", changed.Name, err)
		}
		if o.Generation != judged {
			return nil // the verdict is about another spec; the watch brings this one
		}
	}
}

// assess brings the status of the overlay, a copy, up to date.
func (c *Controller) assess(o *v1alpha1.NodeOverlay, fault error, conflict *Conflict) {
	now, conds := c.Clock.Now(), &o.Status.Conditions
	condition.Init(conds, v1alpha1.ConditionReady, dependents, o.CreationTimestamp.Time)
	valid := metav1.Condition{Type: v1alpha1.ConditionValidationSucceeded, Status: metav1.ConditionTrue, ObservedGeneration: o.Generation}
	switch {
	case fault != nil:
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, v1alpha1.ReasonRuntimeValidation, fault.Error()
	case conflict != nil:
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, v1alpha1.ReasonConflict, conflict.String()
	}
	condition.Set(conds, valid, now)
	condition.Roll(conds, v1alpha1.ConditionReady, dependents, o.Generation, now)
	if observed := c.observed(o); observed == nil {
		condition.Remove(conds, v1alpha1.ConditionCapacityObserved)
	} else {
		condition.Set(conds, *observed, now)
	}
}

// maxFindings keeps the message short.
const maxFindings = 5

// observed says whether nodes have what the overlay declares, nil while no node could tell.
func (c *Controller) observed(o *v1alpha1.NodeOverlay) *metav1.Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	findings := c.learner.seen.of(o.UID)
	cond := &metav1.Condition{Type: v1alpha1.ConditionCapacityObserved, Status: metav1.ConditionTrue, Reason: "CapacityObserved", ObservedGeneration: o.Generation}
	if len(findings) == 0 {
		for target := range c.learner.proven {
			if target.Rule == o.UID {
				return cond
			}
		}
		return nil
	}
	cond.Status, cond.Reason = metav1.ConditionFalse, v1alpha1.ReasonResourceMissing
	parts := make([]string, 0, maxFindings+1)
	for i, f := range findings {
		if i == maxFindings {
			parts = append(parts, fmt.Sprintf("and %d more", len(findings)-maxFindings))
			break
		}
		parts = append(parts, f.String())
	}
	cond.Message = strings.Join(parts, "; ") + remedy
	return cond
}

// report sends events: for conditions that changed, and warnings for trouble that is new.
func (c *Controller) report(before, after *v1alpha1.NodeOverlay) {
	for _, t := range condition.Transitions(before.Status.Conditions, after.Status.Conditions) {
		if t.Now.Type != v1alpha1.ConditionCapacityObserved {
			c.Events.Transition(after, t.Before, t.Now)
		}
	}
	for _, now := range after.Status.Conditions {
		if now.Status != metav1.ConditionFalse || now.Type == v1alpha1.ConditionReady {
			continue
		}
		if old := meta.FindStatusCondition(before.Status.Conditions, now.Type); old == nil || old.Status != now.Status || old.Message != now.Message {
			c.Events.OverlayTrouble(after, now.Reason, now.Message)
		}
	}
}
