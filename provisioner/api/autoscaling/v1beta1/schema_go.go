//go:build !crdschema

package v1beta1

import corev1 "k8s.io/api/core/v1"

// ResourceList is the core ResourceList. Its schema refuses the few texts that pass for quantities but
// cannot be parsed (1e1.5): one such stored object would keep every watcher from reading its kind.
type ResourceList = corev1.ResourceList
