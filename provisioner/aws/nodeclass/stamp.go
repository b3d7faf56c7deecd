package nodeclass

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apitypes "k8s.io/apimachinery/pkg/types"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
)

// stamp puts finalizer and hash on the class. It returns the class as stored.
func (c *Controller) stamp(ctx context.Context, nc *ec2v1.EC2NodeClass) (*ec2v1.EC2NodeClass, error) {
	hash, err := class.Hash(nc, c.opts.CABundle)
	if err != nil {
		return nil, err
	}
	current := nc.Annotations[ec2v1.AnnotationNodeClassHashVersion] == class.HashVersion
	if current && nc.Annotations[ec2v1.AnnotationNodeClassHash] == hash && slices.Contains(nc.Finalizers, ec2v1.TerminationFinalizer) {
		return nc, nil
	}
	if !current {
		if err := c.restamp(ctx, nc.Name, hash); err != nil {
			return nil, err
		}
	}
	if !slices.Contains(nc.Finalizers, ec2v1.TerminationFinalizer) {
		nc.Finalizers = append(nc.Finalizers, ec2v1.TerminationFinalizer)
	}
	if nc.Annotations == nil {
		nc.Annotations = map[string]string{}
	}
	nc.Annotations[ec2v1.AnnotationNodeClassHash] = hash
	nc.Annotations[ec2v1.AnnotationNodeClassHashVersion] = class.HashVersion
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": nc.ResourceVersion, "finalizers": nc.Finalizers, "annotations": map[string]string{
			ec2v1.AnnotationNodeClassHash: hash, ec2v1.AnnotationNodeClassHashVersion: class.HashVersion,
		},
	}})
	if err != nil {
		return nil, fmt.Errorf("encode patch of class %s: %w", nc.Name, err)
	}
	stored, err := c.deps.Client.EC2V1().EC2NodeClasses().Patch(ctx, nc.Name, apitypes.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("patch class %s: %w", nc.Name, err)
	}
	return stored, nil
}

// restamp makes claims that were hashed in another way comparable again. Those that had drifted already
// keep their hash, so that they still are.
func (c *Controller) restamp(ctx context.Context, name, hash string) error {
	all, err := c.claims.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list NodeClaims: %w", err)
	}
	for _, claim := range all {
		ref, version := claim.Spec.NodeClassRef, claim.Annotations[ec2v1.AnnotationNodeClassHashVersion]
		if !isOurs(ref) || ref.Name != name || version == class.HashVersion || version == "" {
			continue
		}
		annotations := map[string]string{ec2v1.AnnotationNodeClassHashVersion: class.HashVersion}
		if meta.FindStatusCondition(claim.Status.Conditions, karpv1.ConditionDrifted) == nil {
			annotations[ec2v1.AnnotationNodeClassHash] = hash
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err != nil {
			return fmt.Errorf("encode patch of NodeClaim %s: %w", claim.Name, err)
		}
		if _, err := c.deps.Client.KarpenterV1().NodeClaims().Patch(ctx, claim.Name, apitypes.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("patch NodeClaim %s: %w", claim.Name, err)
		}
	}
	return nil
}
