package poolhash

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// HashVersion names the algorithm of Hash. Sums are compared only when the versions on both sides are
// equal, so it must change whenever the same template would get another sum.
const HashVersion = "berth-v1"

// template is what the sum covers. Fields that are empty are left out, so that an absent field and an
// empty one are the same, and so is an added field that nobody uses yet. Durations count by their
// length, not by how they are written.
type template struct {
	Labels        map[string]string          `json:"labels,omitempty"`
	Annotations   map[string]string          `json:"annotations,omitempty"`
	NodeClassRef  *karpv1.NodeClassReference `json:"nodeClassRef,omitempty"`
	Taints        []taint                    `json:"taints,omitempty"`
	StartupTaints []taint                    `json:"startupTaints,omitempty"`
	// ExpireAfter is absent for Never.
	ExpireAfter            *time.Duration `json:"expireAfter,omitempty"`
	TerminationGracePeriod *time.Duration `json:"terminationGracePeriod,omitempty"`
}

type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect,omitempty"`
}

// Hash returns the sum of the pool's template without its requirements, as a decimal number. The order
// of taints does not matter.
func Hash(pool *karpv1.NodePool) string {
	from := pool.Spec.Template
	covered := template{
		Labels: from.Labels, Annotations: from.Annotations, NodeClassRef: from.Spec.NodeClassRef,
		Taints: sorted(from.Spec.Taints), StartupTaints: sorted(from.Spec.StartupTaints),
		ExpireAfter: from.Spec.ExpireAfter.Duration,
	}
	if grace := from.Spec.TerminationGracePeriod; grace != nil {
		covered.TerminationGracePeriod = &grace.Duration
	}
	text, err := json.Marshal(covered) // maps come sorted by key
	if err != nil {
		return "" // strings and numbers always encode
	}
	sum := sha256.Sum256(text)
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:8]), 10)
}

func sorted(taints []corev1.Taint) []taint {
	out := make([]taint, len(taints))
	for i, t := range taints {
		out[i] = taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}
	}
	slices.SortFunc(out, func(a, b taint) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Effect, b.Effect), strings.Compare(a.Value, b.Value))
	})
	return out
}
