package fit

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// csiOverlay gives nodes that do not exist the CSINode of a living node of the same instance type, so
// that drivers are there and volume limits hold. Nodes whose CSINode is not published yet count as not
// existing. Without an example there is none, which plugins take for no limit.
type csiOverlay struct {
	shadow *shadow
	real   fwk.CSIManager
}

var (
	_ fwk.CSIManager    = (*csiOverlay)(nil)
	_ fwk.CSINodeLister = (*csiOverlay)(nil)
)

func (c *csiOverlay) CSINodes() fwk.CSINodeLister { return c }

func (c *csiOverlay) List() ([]*storagev1.CSINode, error) { return c.real.CSINodes().List() }

func (c *csiOverlay) Get(name string) (*storagev1.CSINode, error) {
	found, err := c.real.CSINodes().Get(name)
	if err == nil || !apierrors.IsNotFound(err) || c.shadow.current == nil {
		return found, err
	}
	i, ok := c.shadow.current.position(name)
	if !ok {
		return nil, err
	}
	examples, listErr := c.examples()
	if listErr != nil {
		return nil, listErr
	}
	example, ok := examples[c.shadow.current.infos[i].Node().Labels[corev1.LabelInstanceTypeStable]]
	if !ok {
		return nil, err
	}
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *example.Spec.DeepCopy()}, nil
}

// examples maps instance types to the CSINode of a node of the trial with the most drivers. It is made
// once per trial.
func (c *csiOverlay) examples() (map[string]*storagev1.CSINode, error) {
	t := c.shadow.current
	if t.csiExamples != nil {
		return t.csiExamples, nil
	}
	all, err := c.real.CSINodes().List()
	if err != nil {
		return nil, err
	}
	examples := map[string]*storagev1.CSINode{}
	for _, csi := range all {
		i, ok := t.position(csi.Name)
		if !ok {
			continue
		}
		instanceType := t.infos[i].Node().Labels[corev1.LabelInstanceTypeStable]
		best := examples[instanceType]
		if instanceType == "" || best != nil && (len(best.Spec.Drivers) > len(csi.Spec.Drivers) ||
			len(best.Spec.Drivers) == len(csi.Spec.Drivers) && best.Name < csi.Name) {
			continue
		}
		examples[instanceType] = csi
	}
	t.csiExamples = examples
	return examples, nil
}
