package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
)

// Expect tells that the claims are about to be written and will be started by the caller, who has to
// Release those that it does not start. Until then their reconciles launch nothing: a claim that is seen
// before the rest of its group must not go alone.
func (c *Controller) Expect(claims []string) { c.flights.expect(claims) }

// Release takes Expect back; the claims are launched by their own reconciles.
func (c *Controller) Release(claims []string) {
	c.flights.release(claims)
	for _, name := range claims {
		c.queue.Add(name)
	}
}

// Start launches a group whose claims are written. It returns at once; the claims are reconciled when
// the cloud has answered. A group that is being launched already is left alone.
func (c *Controller) Start(ctx context.Context, group cloud.Group) {
	if !c.flights.takeOff(group) {
		for _, claim := range group.Claims {
			c.queue.Add(claim.Name) // each finds out for itself what is left to do
		}
		return
	}
	go func() {
		c.flights.slots <- struct{}{}
		defer func() { <-c.flights.slots }()
		results := c.create(ctx, group)
		c.flights.land(group, results)
		for _, claim := range group.Claims {
			c.queue.Add(claim.Name)
		}
	}()
}

func (c *Controller) create(ctx context.Context, group cloud.Group) []cloud.Created {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "launchGroup", group.ID, "attempt", group.Attempt, "nodeClaims", len(group.Claims))
	started := c.Clock.Now()
	results, err := c.Cloud.Create(klog.NewContext(ctx, logger), group)
	if err == nil && len(results) != len(group.Claims) {
		err = fmt.Errorf("provider answered for %d of %d claims", len(results), len(group.Claims))
	}
	if err != nil {
		logger.Info("Launch failed", "err", err, "duration", c.Clock.Since(started))
		results = slices.Repeat([]cloud.Created{{Err: err}}, len(group.Claims))
		return results
	}
	logger.V(2).Info("Launched", "duration", c.Clock.Since(started))
	return results
}

// launch makes sure that the claim has an instance and its status says which.
func (c *Controller) launch(ctx context.Context, claim *karpv1.NodeClaim) (time.Duration, error) {
	if claim.Status.ProviderID != "" {
		return 0, nil
	}
	if created, ok := c.flights.outcome(claim.UID); ok {
		if created.Err != nil {
			return 0, c.launchFailed(ctx, claim, created.Err)
		}
		return 0, c.launched(ctx, claim, created.Instance)
	}
	if c.flights.isFlying(claim.UID) {
		return 0, nil
	}
	if left := c.flights.isExpected(claim.Name); left > 0 {
		return left, nil
	}
	group, err := c.groupOf(ctx, claim)
	if err != nil {
		return 0, err
	}
	c.Start(ctx, group)
	return 0, nil
}

// groupOf finds the launch that the claim belongs to: the one on record when all of its members still
// are there, so that exactly the same request is made again, else a new one of the claim alone.
func (c *Controller) groupOf(ctx context.Context, claim *karpv1.NodeClaim) (cloud.Group, error) {
	ref, err := cloud.ParseGroup(claim.Annotations[karpv1.AnnotationLaunchGroup], claim.Name)
	if err == nil {
		group := cloud.Group{ID: ref.ID, Attempt: ref.Attempt}
		for _, name := range ref.Members {
			member, err := c.claims.Get(name)
			if err != nil || !sameGroup(member, ref) {
				break
			}
			group.Claims = append(group.Claims, member.DeepCopy())
		}
		if len(group.Claims) == len(ref.Members) {
			return group, nil
		}
		klog.FromContext(ctx).Info("Launch group is not complete, the claim is launched alone", "launchGroup", ref.ID)
	}
	ref = cloud.GroupRef{ID: string(uuid.NewUUID()), Attempt: 1, Members: []string{claim.Name}}
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	claim.Annotations[karpv1.AnnotationLaunchGroup] = ref.Encode()
	updated, err := c.update(ctx, claim)
	if err != nil {
		return cloud.Group{}, fmt.Errorf("record launch group: %w", err)
	}
	*claim = *updated
	return cloud.Group{ID: ref.ID, Attempt: ref.Attempt, Claims: []*karpv1.NodeClaim{updated.DeepCopy()}}, nil
}

func sameGroup(member *karpv1.NodeClaim, ref cloud.GroupRef) bool {
	other, err := cloud.ParseGroup(member.Annotations[karpv1.AnnotationLaunchGroup], member.Name)
	return err == nil && other.ID == ref.ID && other.Attempt == ref.Attempt
}

// launched writes what the cloud told of the instance: metadata first, then status, in whose absence
// the next look does the same again.
func (c *Controller) launched(ctx context.Context, claim *karpv1.NodeClaim, instance *cloud.Instance) error {
	changed := addMissing(&claim.Labels, instance.Labels)
	changed = addMissing(&claim.Annotations, instance.Annotations) || changed
	if changed {
		updated, err := c.update(ctx, claim)
		if err != nil {
			return err
		}
		*claim = *updated
	}
	claim.Status.ProviderID, claim.Status.ImageID = instance.ProviderID, instance.ImageID
	claim.Status.Capacity, claim.Status.Allocatable = instance.Capacity, instance.Allocatable
	c.mark(claim, karpv1.ConditionLaunched, metav1.ConditionTrue, karpv1.ConditionLaunched, "")
	c.tellName(ctx, claim, instance.NodeName)
	return nil
}

// addMissing adds pairs whose keys are not there; it reports whether it added any.
func addMissing(to *map[string]string, pairs map[string]string) bool {
	changed := false
	for key, value := range pairs {
		if _, ok := (*to)[key]; ok {
			continue
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = value
		changed = true
	}
	return changed
}

// tellName passes the node's name on when it is news.
func (c *Controller) tellName(ctx context.Context, claim *karpv1.NodeClaim, name string) {
	if name == "" {
		return
	}
	c.mu.Lock()
	news := c.named[claim.UID] != name
	c.named[claim.UID] = name
	c.mu.Unlock()
	if news && c.Hooks.NodeNamed != nil {
		c.Hooks.NodeNamed(ctx, claim.Name, name)
	}
}

func (c *Controller) hasName(claim *karpv1.NodeClaim) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.named[claim.UID] != ""
}

// maxReason is where long errors are cut in the Launched condition.
const maxReason = 300

// launchFailed gives the claim up when another one may do better, and else says why it waits.
func (c *Controller) launchFailed(ctx context.Context, claim *karpv1.NodeClaim, err error) error {
	switch {
	case cloud.IsNoCapacity(err):
		c.Events.InsufficientCapacity(claim, err)
		return c.giveUp(ctx, claim, "insufficient_capacity")
	case cloud.IsClassNotReady(err):
		c.Events.NodeClassNotReady(claim, err)
		return c.giveUp(ctx, claim, "nodeclass_not_ready")
	}
	reason, message := karpv1.ReasonLaunchFailed, err.Error()
	if create, ok := errors.AsType[*cloud.CreateError](err); ok {
		reason, message = create.Reason, create.Message
	}
	if len(message) > maxReason {
		message = message[:maxReason] + "..."
	}
	c.Events.LaunchFailed(claim, message)
	c.mark(claim, karpv1.ConditionLaunched, metav1.ConditionUnknown, reason, message)
	return fmt.Errorf("launch: %w", err)
}

// giveUp deletes a claim that will get no node and lets its pods ask for another.
func (c *Controller) giveUp(ctx context.Context, claim *karpv1.NodeClaim, reason string) error {
	if err := c.delete(ctx, claim, reason); err != nil {
		return err
	}
	if c.Hooks.ClaimFailed != nil {
		c.Hooks.ClaimFailed(ctx, claim.Name)
	}
	return errGone
}

// liveness ends a claim that got no further for too long.
func (c *Controller) liveness(ctx context.Context, claim *karpv1.NodeClaim) (time.Duration, error) {
	age := c.Clock.Since(claim.CreationTimestamp.Time)
	for _, limit := range []struct {
		condition, reason string
		timeout           time.Duration
	}{
		{karpv1.ConditionLaunched, "launch_timeout", c.options.LaunchTimeout},
		{karpv1.ConditionRegistered, "registration_timeout", c.options.RegistrationTimeout},
	} {
		if isTrue(claim, limit.condition) {
			continue
		}
		if left := limit.timeout - age; left > 0 {
			return left, nil
		}
		c.registration(claim, false)
		return 0, c.giveUp(ctx, claim, limit.reason)
	}
	return 0, nil
}

func (c *Controller) registration(claim *karpv1.NodeClaim, ok bool) {
	if pool := claim.Labels[karpv1.LabelNodePool]; pool != "" && c.Hooks.Registration != nil {
		c.Hooks.Registration(pool, ok)
	}
}

func isTrue(claim *karpv1.NodeClaim, kind string) bool {
	for _, condition := range claim.Status.Conditions {
		if condition.Type == kind {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return false
}
