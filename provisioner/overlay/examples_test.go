package overlay_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/examples"
	"github.com/berth-dev/berth/provisioner/api/karpenter/v1alpha1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/overlay"
	"github.com/berth-dev/berth/provisioner/requirement"
)

// The examples do what their comments say.
func TestExamples(t *testing.T) {
	t.Parallel()
	text, err := examples.Files.ReadFile("overlays/overlays.yaml")
	require.NoError(t, err)
	var overlays []*v1alpha1.NodeOverlay
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		o := &v1alpha1.NodeOverlay{}
		require.NoError(t, yaml.UnmarshalStrict(document, o))
		overlays = append(overlays, o)
	}
	require.Len(t, overlays, 3)
	m5, m6 := machine("m5.xlarge"), machine("m6i.xlarge")
	m5.Requirements["karpenter.k8s.aws/instance-family"] = requirement.New("karpenter.k8s.aws/instance-family", in, "m5")
	list := []*catalog.InstanceType{m5, m6}
	licensed, other := makePool("licensed", nil), makePool("other", nil)
	accepted, conflicts := overlay.Settle(rules(t, overlays...), []overlay.Pool{{NodePool: licensed, Types: list}, {NodePool: other, Types: list}})
	require.Empty(t, conflicts)
	got := overlay.Apply(accepted, licensed, list, nil)
	require.InDeltaMapValues(t, map[string]float64{"a on-demand": 0.72, "b on-demand": 0.72, "a spot": 0.52, "b spot": 0.52}, prices(got[0]), 1e-9)
	require.InDeltaMapValues(t, map[string]float64{"a on-demand": 1.12, "b on-demand": 1.12, "a spot": 0.52, "b spot": 0.52}, prices(got[1]), 1e-9)
	require.EqualValues(t, 20, got[1].Capacity.Get(corev1.ResourceName("smarter-devices/fuse")))
	got = overlay.Apply(accepted, other, list, nil)
	require.InDelta(t, 0.4, prices(got[0])["a spot"], 1e-9)
}
