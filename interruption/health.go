package interruption

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/interruption/message"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
)

const (
	healthInterval = time.Minute
	// failedFor is how long a check must have failed: EC2's own recovery gets that much time.
	failedFor = 2 * time.Minute
)

// Health is what is asked of the cloud.
type Health interface {
	// Ailments tells what is wrong with any instance, ours or not.
	Ailments(ctx context.Context) ([]cloud.Ailment, error)
}

// ailment is one instance's trouble of one category.
type ailment struct {
	instance string
	category cloud.AilmentCategory
}

// watchHealth asks the cloud every minute which instances ail, and has their nodes replaced, until ctx
// ends. It needs no queue. When the cloud refuses to tell, it stops and says what to grant.
func (c *Controller) watchHealth(ctx context.Context) {
	ticker := c.Clock.NewTicker(healthInterval)
	defer ticker.Stop()
	known := map[ailment]bool{}
	for {
		list, err := c.Health.Ailments(ctx)
		switch {
		case err == nil:
			known = c.treat(ctx, list, known)
		case ctx.Err() != nil:
			return
		case isDenied(err):
			klog.FromContext(ctx).Error(err, "The health of instances may not be read, so it is not watched; grant ec2:DescribeInstanceStatus and restart")
			return
		default:
			klog.FromContext(ctx).Error(err, "Reading the health of instances failed, will retry")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func isDenied(err error) bool {
	var coded interface{ ErrorCode() string }
	return errors.As(err, &coded) && (coded.ErrorCode() == "UnauthorizedOperation" || strings.HasPrefix(coded.ErrorCode(), "AccessDenied"))
}

// treat acts on the ailments of our instances, and returns those that are known by now.
func (c *Controller) treat(ctx context.Context, list []cloud.Ailment, known map[ailment]bool) map[ailment]bool {
	now := map[ailment]bool{}
	for _, a := range list {
		kind, forced := kindOf(a.Category)
		if forced && !a.Since.IsZero() && c.Clock.Since(a.Since) < failedFor {
			continue
		}
		claim, node, err := c.find(a.InstanceID)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Looking for an ailing instance failed, will retry", "instance", a.InstanceID)
			continue
		}
		if claim == nil {
			continue
		}
		key := ailment{a.InstanceID, a.Category}
		if now[key] = true; !known[key] {
			c.metrics.unhealthy.WithLabelValues(string(a.Category)).Inc()
		}
		if err := c.replace(ctx, kind, forced, claim, node); err != nil {
			klog.FromContext(ctx).Error(err, "Replacing an ailing node failed, will retry", "nodeClaim", klog.KObj(claim))
		}
	}
	return now
}

// kindOf names the action on an ailment; forced nodes are not drained for long, as they are broken.
func kindOf(category cloud.AilmentCategory) (kind message.Kind, forced bool) {
	switch category {
	case cloud.InstanceCheckFailed:
		return "instance_status", true
	case cloud.SystemCheckFailed:
		return "system_status", true
	default:
		return "event_status", false
	}
}

func (c *Controller) replace(ctx context.Context, kind message.Kind, forced bool, claim *karpv1.NodeClaim, node *corev1.Node) error {
	if forced && claim.Annotations[karpv1.AnnotationTerminationTimestamp] == "" {
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, claim.UID, karpv1.AnnotationTerminationTimestamp, c.Clock.Now().UTC().Format(time.RFC3339))
		_, err := c.Karpenter.KarpenterV1().NodeClaims().Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("set termination timestamp of nodeclaim %s: %w", claim.Name, err)
		}
	}
	return c.respond(ctx, kind, response{corev1.EventTypeWarning, "InstanceUnhealthy", "An unhealthy warning was triggered for the instance", true, false}, claim, node)
}
