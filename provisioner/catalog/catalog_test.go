package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/resources"
)

func vector(pairs ...string) resources.Vector {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return resources.FromList(list)
}

func TestAllocatable(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ capacity, overhead, want resources.Vector }{
		"capacity less overhead":        {vector("cpu", "2", "memory", "8Gi", "pods", "29"), vector("cpu", "70m", "memory", "1Gi"), vector("cpu", "1930m", "memory", "7Gi", "pods", "29")},
		"huge pages come out of memory": {vector("memory", "8Gi", "hugepages-2Mi", "2Gi"), vector("memory", "1Gi"), vector("memory", "5Gi", "hugepages-2Mi", "2Gi")},
		"never below nothing":           {vector("cpu", "1", "memory", "1Gi"), vector("cpu", "2", "memory", "2Gi"), vector()},
		"devices are all for pods":      {vector("nvidia.com/gpu", "4"), vector("cpu", "0"), vector("nvidia.com/gpu", "4")},
		"more huge pages than memory":   {vector("memory", "1Gi", "hugepages-1Gi", "2Gi"), vector(), vector("hugepages-1Gi", "2Gi")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			it := catalog.InstanceType{Capacity: tc.capacity, Overhead: tc.overhead}
			require.Equal(t, tc.want.String(), it.Allocatable().String())
			require.True(t, tc.want.Equal(it.Allocatable()))
		})
	}
}
