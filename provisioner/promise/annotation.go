package promise

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxAnnotated bounds the annotation: no kubelet takes more pods than this.
const maxAnnotated = 1000

// EncodeAnnotation renders the pods that a claim was bought for, so that a restart keeps the promises.
func EncodeAnnotation(pods []*corev1.Pod) string {
	uids := make([]types.UID, 0, min(len(pods), maxAnnotated))
	for _, pod := range pods[:min(len(pods), maxAnnotated)] {
		uids = append(uids, pod.UID)
	}
	raw, err := json.Marshal(uids)
	if err != nil {
		return "[]" // strings always encode
	}
	return string(raw)
}

// ParseAnnotation reads what EncodeAnnotation wrote.
func ParseAnnotation(text string) ([]types.UID, error) {
	var uids []types.UID
	if err := json.Unmarshal([]byte(text), &uids); err != nil {
		return nil, fmt.Errorf("parse promises %q: %w", text, err)
	}
	return uids[:min(len(uids), maxAnnotated)], nil
}
