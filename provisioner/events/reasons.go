package events

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of events; the comment gives type and object. They are stable: people alert on them.
const (
	ReasonNominated                  = "Nominated"                      // Normal, Pod
	ReasonFailedScheduling           = "FailedScheduling"               // Warning, Pod
	ReasonInsufficientCapacity       = "InsufficientCapacityError"      // Warning, NodeClaim
	ReasonNodeClassNotReady          = "NodeClassNotReady"              // Warning, NodeClaim
	ReasonLaunchFailed               = "LaunchFailed"                   // Warning, NodeClaim
	ReasonUnregisteredTaintMissing   = "UnregisteredTaintMissing"       // Warning, NodeClaim
	ReasonFinalized                  = "Finalized"                      // Normal, NodeClaim, NodePool, Node
	ReasonFailedDraining             = "FailedDraining"                 // Warning, Node and NodeClaim
	ReasonDisrupted                  = "Disrupted"                      // Normal, Pod
	ReasonAwaitingVolumeDetachment   = "AwaitingVolumeDetachment"       // Normal, Node
	ReasonEvicted                    = "Evicted"                        // Normal, Pod
	ReasonDisruptionBlocked          = "DisruptionBlocked"              // Normal, Node, NodeClaim and NodePool
	ReasonBudgetGap                  = "BudgetGap"                      // Warning, NodePool
	ReasonDisruptionTerminating      = "DisruptionTerminating"          // Normal, Node and NodeClaim
	ReasonUnconsolidatable           = "Unconsolidatable"               // Normal, Node and NodeClaim
	ReasonDisruptionWaitingReadiness = "DisruptionWaitingReadiness"     // Normal, NodeClaim
	ReasonConsolidationRejected      = "ConsolidationRejected"          // Normal, Node and NodeClaim
	ReasonNodeRepairBlocked          = "NodeRepairBlocked"              // Warning, Node
	ReasonLaunchBraked               = "LaunchBraked"                   // Warning, NodePool
	ReasonTerminationGraceExpiring   = "TerminationGracePeriodExpiring" // Warning, NodeClaim
)

// Nominated says where the pod will run: on a claim, a node, or a claim whose node is known.
func (r *Recorder) Nominated(pod *corev1.Pod, claim, node string) {
	if !r.nominated.TryAccept() {
		return
	}
	switch {
	case claim == "":
		r.normal(pod, ReasonNominated, defaultDedupe, "Pod should schedule on: node/%s", node)
	case node == "":
		r.normal(pod, ReasonNominated, defaultDedupe, "Pod should schedule on: nodeclaim/%s", claim)
	default:
		r.normal(pod, ReasonNominated, defaultDedupe, "Pod should schedule on: nodeclaim/%s, node/%s", claim, node)
	}
}

// FailedScheduling says why no node, existing or new, can take the pod.
func (r *Recorder) FailedScheduling(pod *corev1.Pod, reason string) {
	r.warn(pod, ReasonFailedScheduling, 5*time.Minute, "Failed to schedule pod, %s", reason)
}

// InsufficientCapacity says that the cloud has none of what the claim allows.
func (r *Recorder) InsufficientCapacity(claim Object, err error) {
	r.warn(claim, ReasonInsufficientCapacity, defaultDedupe, "NodeClaim %s was deleted: %v", claim.GetName(), err)
}

// NodeClassNotReady says that the claim could not be launched for its class.
func (r *Recorder) NodeClassNotReady(claim Object, err error) {
	r.warn(claim, ReasonNodeClassNotReady, defaultDedupe, "NodeClaim %s was deleted: %v", claim.GetName(), err)
}

// LaunchFailed says why the cloud refused, and that it is tried again.
func (r *Recorder) LaunchFailed(claim Object, message string) {
	r.warn(claim, ReasonLaunchFailed, defaultDedupe, "Launch failed and will be retried: %s", message)
}

// UnregisteredTaintMissing says that the node came without the taint that keeps pods off until it is
// registered: its image or user data does not set it.
func (r *Recorder) UnregisteredTaintMissing(claim Object, node string) {
	r.warn(claim, ReasonUnregisteredTaintMissing, defaultDedupe,
		"Node %s registered without the taint karpenter.sh/unregistered:NoExecute; pods may have started before it was set up. "+
			"Check the user data of its node class", node)
}

// Transition tells of a status condition that changed.
func (r *Recorder) Transition(object Object, before metav1.ConditionStatus, now metav1.Condition) {
	if now.Message == "" {
		r.normal(object, now.Type, 0, "Status condition transitioned, Type: %s, Status: %s -> %s, Reason: %s", now.Type, before, now.Status, now.Reason)
		return
	}
	r.normal(object, now.Type, 0, "Status condition transitioned, Type: %s, Status: %s -> %s, Reason: %s, Message: %s",
		now.Type, before, now.Status, now.Reason, now.Message)
}

// Finalized says that the object's finalizer is off.
func (r *Recorder) Finalized(object Object, finalizer string) {
	r.normal(object, ReasonFinalized, 0, "Finalized %s", finalizer)
}

// FailedDraining names what the drain of the node waits for.
func (r *Recorder) FailedDraining(object Object, waitingFor string) {
	r.warn(object, ReasonFailedDraining, defaultDedupe, "Failed to drain node, %s", waitingFor)
}

// Evicted says that the pod was asked to leave its node.
func (r *Recorder) Evicted(pod *corev1.Pod, why string) {
	r.normal(pod, ReasonEvicted, defaultDedupe, "Evicted pod: %s", why)
}

// DisruptionBlocked says why an object is left alone.
func (r *Recorder) DisruptionBlocked(object Object, why string) {
	r.normal(object, ReasonDisruptionBlocked, time.Minute, "%s", why)
}

// BudgetBlocks says that the pool's budgets let no node go for the reason.
func (r *Recorder) BudgetBlocks(pool Object, reason string) {
	r.publish(pool, corev1.EventTypeNormal, ReasonDisruptionBlocked, reason, time.Minute,
		fmt.Sprintf("No allowed disruptions for disruption reason %s due to blocking budget", reason))
}

// BudgetGap says that at some time no budget of the pool limits a reason that is limited at others.
func (r *Recorder) BudgetGap(pool Object, reason, text string) {
	r.publish(pool, corev1.EventTypeWarning, ReasonBudgetGap, reason, time.Hour, text)
}

// DisruptionTerminating says that the node is being removed by choice.
func (r *Recorder) DisruptionTerminating(object Object, reason string) {
	r.normal(object, ReasonDisruptionTerminating, defaultDedupe, "Disrupting Node: %s", reason)
}

// Unconsolidatable says why the node cannot be consolidated.
func (r *Recorder) Unconsolidatable(object Object, why string) {
	r.normal(object, ReasonUnconsolidatable, 15*time.Minute, "%s", why)
}

// DisruptionWaiting says that a node waits for this claim to become ready before it goes.
func (r *Recorder) DisruptionWaiting(claim Object) {
	r.normal(claim, ReasonDisruptionWaitingReadiness, defaultDedupe, "Waiting for readiness to continue disruption")
}

// ConsolidationRejected says why a consolidation that looked good was not carried out.
func (r *Recorder) ConsolidationRejected(object Object, why string) {
	r.normal(object, ReasonConsolidationRejected, defaultDedupe, "Consolidation rejected, reason: %s", why)
}

// NodeRepairBlocked says why a node that ails is not given up.
func (r *Recorder) NodeRepairBlocked(node Object, why string) {
	r.warn(node, ReasonNodeRepairBlocked, 15*time.Minute, "%s", why)
}

// LaunchBraked says that a safety brake holds launches back.
func (r *Recorder) LaunchBraked(pool Object, why string) {
	r.warn(pool, ReasonLaunchBraked, time.Minute, "Launches are held back: %s", why)
}

// PoolTrouble tells what is wrong with a pool that can be used nevertheless.
func (r *Recorder) PoolTrouble(pool Object, reason, message string) {
	r.warn(pool, reason, 10*time.Minute, "%s", message)
}

// OverlayTrouble tells why a NodeOverlay, or a part of it, is not applied.
func (r *Recorder) OverlayTrouble(overlay Object, reason, message string) {
	r.warn(overlay, reason, 10*time.Minute, "%s", message)
}

// TerminationGraceExpiring says that the drain is about to be forced.
func (r *Recorder) TerminationGraceExpiring(claim Object, at time.Time) {
	r.warn(claim, ReasonTerminationGraceExpiring, defaultDedupe, "All pods will be deleted by %s", at.UTC().Format(time.RFC3339))
}

// Disrupted says that the pod was deleted because its node's grace period ends.
func (r *Recorder) Disrupted(pod *corev1.Pod, graceSeconds int64) {
	r.normal(pod, ReasonDisrupted, defaultDedupe,
		"Deleted the pod to accommodate the terminationGracePeriod of its node; it was granted %d seconds", graceSeconds)
}

// AwaitingVolumeDetachment names the volumes that the node's termination waits for.
func (r *Recorder) AwaitingVolumeDetachment(node Object, volumes string) {
	r.normal(node, ReasonAwaitingVolumeDetachment, defaultDedupe, "Awaiting deletion of bound volumeattachments (%s)", volumes)
}

// Interruption tells what the cloud announced about the object's instance; reason is one of those that
// dashboards know.
func (r *Recorder) Interruption(object Object, eventType, reason, text string) {
	if eventType == corev1.EventTypeWarning {
		r.warn(object, reason, defaultDedupe, "%s", text)
		return
	}
	r.normal(object, reason, defaultDedupe, "%s", text)
}
