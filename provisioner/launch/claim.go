package launch

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/solver"
)

// nameSuffix is how many random characters follow the pool's name, as generateName gives.
const nameSuffix = 5

// maxName leaves room for the suffix in a DNS label-sized object name.
const maxName = 63 - nameSuffix - 1

// NewClaim builds the NodeClaim for a planned claim of the pool; the caller adds the launch group.
func NewClaim(pool *karpv1.NodePool, planned solver.Claim) *karpv1.NodeClaim {
	base := pool.Name
	if len(base) > maxName {
		base = strings.TrimRight(base[:maxName], "-.")
	}
	name := base + "-" + rand.String(nameSuffix)
	requirements := withTypes(planned)
	template := pool.Spec.Template.Spec
	claim := &karpv1.NodeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: karpv1.SchemeGroupVersion.String(), Kind: "NodeClaim"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: claimLabels(pool, requirements, name), Annotations: claimAnnotations(pool, planned),
			Finalizers: []string{karpv1.TerminationFinalizer},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: karpv1.SchemeGroupVersion.String(), Kind: "NodePool", Name: pool.Name, UID: pool.UID,
				BlockOwnerDeletion: new(true),
			}},
		},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: template.NodeClassRef.DeepCopy(),
			Requirements: requirements.ToClaim(),
			Resources:    karpv1.ResourceRequirements{Requests: planned.Requests.ToList()},
			Taints:       slices.Clone(template.Taints), StartupTaints: slices.Clone(template.StartupTaints),
			ExpireAfter: template.ExpireAfter, TerminationGracePeriod: template.TerminationGracePeriod,
		},
	}
	return claim
}

// withTypes is what the node may become: the plan's requirements and its list of types. Without a list the
// requirements stay as they are.
func withTypes(planned solver.Claim) requirement.Set {
	names := make([]string, len(planned.Types))
	for i, it := range planned.Types {
		names[i] = it.Name
	}
	out := planned.Requirements.Clone()
	if out == nil {
		out = requirement.Set{}
	}
	if len(names) == 0 {
		return out
	}
	// The names replace what the pool said of the key; its minValues stays.
	wanted := out.Get(corev1.LabelInstanceTypeStable).MinValues()
	out[corev1.LabelInstanceTypeStable] = requirement.New(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, names...).WithMinValues(wanted)
	delete(out, corev1.LabelHostname)
	return out
}

// NodeClassLabel is the label key that names the class of a claim or node.
func NodeClassLabel(ref *karpv1.NodeClassReference) string {
	return ref.Group + "/" + strings.ToLower(ref.Kind)
}

// claimLabels are the template's, the pool's and class's names, and a value for each custom key that
// the requirements leave open. Keys that the launch decides are added by it.
func claimLabels(pool *karpv1.NodePool, requirements requirement.Set, seedText string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, pool.Spec.Template.Labels)
	seed := sha256.Sum256([]byte(seedText))
	for key, r := range requirements {
		if requirement.IsWellKnown(key) || key == corev1.LabelHostname {
			continue
		}
		if value, ok := r.Any(binary.BigEndian.Uint64(seed[:8])); ok {
			labels[key] = value
		}
	}
	labels[karpv1.LabelNodePool] = pool.Name
	if ref := pool.Spec.Template.Spec.NodeClassRef; ref != nil {
		labels[NodeClassLabel(ref)] = ref.Name
	}
	return labels
}

func claimAnnotations(pool *karpv1.NodePool, planned solver.Claim) map[string]string {
	annotations := map[string]string{}
	maps.Copy(annotations, pool.Spec.Template.Annotations)
	for _, key := range []string{karpv1.AnnotationNodePoolHash, karpv1.AnnotationNodePoolHashVersion} {
		if value, ok := pool.Annotations[key]; ok {
			annotations[key] = value
		}
	}
	annotations[karpv1.AnnotationMinValuesRelaxed] = strconv.FormatBool(planned.MinValuesRelaxed)
	if slices.ContainsFunc(planned.Types, func(it *catalog.InstanceType) bool { return it.PriceOverlaid }) {
		annotations[karpv1.AnnotationPriceOverlayApplied] = karpv1.ValueTrue
	}
	if slices.ContainsFunc(planned.Types, func(it *catalog.InstanceType) bool { return it.CapacityOverlaid }) {
		annotations[karpv1.AnnotationCapacityOverlayApplied] = karpv1.ValueTrue
	}
	annotations[karpv1.AnnotationPromises] = promise.EncodeAnnotation(planned.Pods)
	return annotations
}

// shape tells claims apart that one cloud call cannot serve together.
func shape(claim *karpv1.NodeClaim) string {
	raw, err := json.Marshal(struct {
		Spec   karpv1.NodeClaimSpec
		Labels map[string]string
	}{claim.Spec, openLabels(claim)})
	if err != nil {
		return claim.Name // a group of its own is always right
	}
	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

// openLabels are the labels that go into user data and therefore must be equal within a group.
func openLabels(claim *karpv1.NodeClaim) map[string]string { return claim.Labels }
