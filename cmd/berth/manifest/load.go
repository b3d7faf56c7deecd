package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// Set is everything that the files say. Objects are defaulted as an API server would, as far as planning
// looks at them.
type Set struct {
	Nodes   []*corev1.Node
	Pods    []*corev1.Pod // of the files and of the workloads
	Pools   []*karpv1.NodePool
	Claims  []*karpv1.NodeClaim
	Classes []*ec2v1.EC2NodeClass
	Daemons []*appsv1.DaemonSet
	// Others are objects that filters read: volumes, claims, classes, namespaces, budgets, owners.
	Others []runtime.Object
	// Notes are remarks for the user: what was left out or looks wrong.
	Notes []string

	// Custom are the objects of Berth's own kinds as they are written.
	Custom []Document

	deployments  []*appsv1.Deployment
	replicaSets  []*appsv1.ReplicaSet
	statefulSets []*appsv1.StatefulSet
	controllers  []*corev1.ReplicationController
	jobs         []*batchv1.Job
	priorities   []*schedulingv1.PriorityClass
	ignored      map[string]int // by kind
}

// Load reads a file, or every .yaml, .yml and .json file below a folder. "-" is standard input. An error
// names the file, the document in it, counted from 1, and the field.
func Load(path string, stdin io.Reader) (*Set, error) {
	s := &Set{ignored: map[string]int{}}
	files, err := filesOf(path)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := s.readFile(file, stdin); err != nil {
			return nil, err
		}
	}
	for _, kind := range sortedKeys(s.ignored) {
		s.Notes = append(s.Notes, fmt.Sprintf("%d %s ignored: planning does not look at them", s.ignored[kind], kind))
	}
	return s, s.complete()
}

func filesOf(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ext := filepath.Ext(name); !entry.IsDir() && (ext == ".yaml" || ext == ".yml" || ext == ".json") {
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read manifests: %s has no .yaml, .yml or .json file", path)
	}
	slices.Sort(files)
	return files, nil
}

func (s *Set) readFile(name string, stdin io.Reader) error {
	in := stdin
	if name != "-" {
		file, err := os.Open(name) //nolint:gosec // the user names the file
		if err != nil {
			return fmt.Errorf("read manifests: %w", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for document := 1; ; document++ {
		raw, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s, document %d: %w", name, document, err)
		}
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		if err := s.readDocument(fmt.Sprintf("%s, document %d", name, document), raw); err != nil {
			return err
		}
	}
}

// Document is one object as it is written, as JSON or YAML.
type Document struct {
	// Where names the file, the document and the object.
	Where string
	schema.GroupVersionKind
	Raw []byte
}

// header is what every object has, and the items of a list.
type header struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Items             []runtime.RawExtension `json:"items"`
}

func (s *Set) readDocument(where string, raw []byte) error {
	var h header
	if err := yaml.Unmarshal(raw, &h); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	switch {
	case h.Kind == "" && h.APIVersion == "" && onlyComments(raw):
		return nil
	case h.Kind == "":
		return fmt.Errorf("%s: kind: missing; every document needs apiVersion and kind", where)
	case h.APIVersion == "":
		return fmt.Errorf("%s (%s %s): apiVersion: missing", where, h.Kind, h.Name)
	case strings.HasSuffix(h.Kind, "List"):
		for i, item := range h.Items {
			if err := s.readDocument(fmt.Sprintf("%s, items[%d]", where, i), item.Raw); err != nil {
				return err
			}
		}
		return nil
	}
	group := schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
	if group.Group == karpv1.SchemeGroupVersion.Group || group.Group == ec2v1.SchemeGroupVersion.Group {
		s.Custom = append(s.Custom, Document{fmt.Sprintf("%s (%s %s)", where, h.Kind, h.Name), group, raw})
	}
	place, known := s.kinds()[group.GroupKind()]
	if !known {
		s.ignored[h.Kind]++
		return nil
	}
	if group.Version != place.version {
		return fmt.Errorf("%s (%s %s): apiVersion: %s is not read, use %s", where, h.Kind, h.Name, h.APIVersion,
			schema.GroupVersion{Group: group.Group, Version: place.version})
	}
	if h.Name == "" {
		return fmt.Errorf("%s (%s): metadata.name: missing", where, h.Kind)
	}
	return place.add(fmt.Sprintf("%s (%s %s)", where, h.Kind, h.Name), raw)
}

func onlyComments(raw []byte) bool {
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "---") {
			return false
		}
	}
	return true
}

// kind says in which version a kind is read and where its objects go.
type kind struct {
	version string
	add     func(where string, raw []byte) error
}

func (s *Set) kinds() map[schema.GroupKind]kind {
	return map[schema.GroupKind]kind{
		{Kind: "Node"}:                  {"v1", into(s, func(o *corev1.Node) { s.Nodes = append(s.Nodes, o) })},
		{Kind: "Pod"}:                   {"v1", into(s, func(o *corev1.Pod) { s.Pods = append(s.Pods, o) })},
		{Kind: "ReplicationController"}: {"v1", into(s, func(o *corev1.ReplicationController) { s.controllers = append(s.controllers, o) })},
		{Kind: "Namespace"}:             {"v1", into(s, func(o *corev1.Namespace) { s.Others = append(s.Others, o) })},
		{Kind: "Service"}:               {"v1", into(s, func(o *corev1.Service) { s.Others = append(s.Others, namespaced(o)) })},
		{Kind: "PersistentVolume"}:      {"v1", into(s, func(o *corev1.PersistentVolume) { s.Others = append(s.Others, o) })},
		{Kind: "PersistentVolumeClaim"}: {"v1", into(s, func(o *corev1.PersistentVolumeClaim) { s.Others = append(s.Others, namespaced(o)) })},

		{Group: appsv1.GroupName, Kind: "Deployment"}:  {"v1", into(s, func(o *appsv1.Deployment) { s.deployments = append(s.deployments, namespaced(o)) })},
		{Group: appsv1.GroupName, Kind: "ReplicaSet"}:  {"v1", into(s, func(o *appsv1.ReplicaSet) { s.replicaSets = append(s.replicaSets, namespaced(o)) })},
		{Group: appsv1.GroupName, Kind: "StatefulSet"}: {"v1", into(s, func(o *appsv1.StatefulSet) { s.statefulSets = append(s.statefulSets, namespaced(o)) })},
		{Group: appsv1.GroupName, Kind: "DaemonSet"}:   {"v1", into(s, func(o *appsv1.DaemonSet) { s.Daemons = append(s.Daemons, namespaced(o)) })},
		{Group: batchv1.GroupName, Kind: "Job"}:        {"v1", into(s, func(o *batchv1.Job) { s.jobs = append(s.jobs, namespaced(o)) })},

		{Group: storagev1.GroupName, Kind: "StorageClass"}:       {"v1", into(s, func(o *storagev1.StorageClass) { s.Others = append(s.Others, o) })},
		{Group: storagev1.GroupName, Kind: "CSINode"}:            {"v1", into(s, func(o *storagev1.CSINode) { s.Others = append(s.Others, o) })},
		{Group: storagev1.GroupName, Kind: "CSIDriver"}:          {"v1", into(s, func(o *storagev1.CSIDriver) { s.Others = append(s.Others, o) })},
		{Group: policyv1.GroupName, Kind: "PodDisruptionBudget"}: {"v1", into(s, func(o *policyv1.PodDisruptionBudget) { s.Others = append(s.Others, namespaced(o)) })},
		{Group: schedulingv1.GroupName, Kind: "PriorityClass"}:   {"v1", into(s, func(o *schedulingv1.PriorityClass) { s.priorities = append(s.priorities, o) })},
		{Group: resourcev1.GroupName, Kind: "ResourceClaim"}:     {"v1", into(s, func(o *resourcev1.ResourceClaim) { s.Others = append(s.Others, namespaced(o)) })},
		{Group: resourcev1.GroupName, Kind: "ResourceSlice"}:     {"v1", into(s, func(o *resourcev1.ResourceSlice) { s.Others = append(s.Others, o) })},
		{Group: resourcev1.GroupName, Kind: "DeviceClass"}:       {"v1", into(s, func(o *resourcev1.DeviceClass) { s.Others = append(s.Others, o) })},

		{Group: karpv1.SchemeGroupVersion.Group, Kind: "NodePool"}:    {karpv1.SchemeGroupVersion.Version, into(s, func(o *karpv1.NodePool) { s.Pools = append(s.Pools, o) })},
		{Group: karpv1.SchemeGroupVersion.Group, Kind: "NodeClaim"}:   {karpv1.SchemeGroupVersion.Version, into(s, func(o *karpv1.NodeClaim) { s.Claims = append(s.Claims, o) })},
		{Group: ec2v1.SchemeGroupVersion.Group, Kind: "EC2NodeClass"}: {ec2v1.SchemeGroupVersion.Version, into(s, func(o *ec2v1.EC2NodeClass) { s.Classes = append(s.Classes, o) })},
	}
}

// into decodes an object and hands it on. A field that the kind does not have is a remark, as the API
// server would drop it; a field of the wrong type is an error.
func into[T any](s *Set, add func(*T)) func(where string, raw []byte) error {
	return func(where string, raw []byte) error {
		object := new(T)
		if strict := yaml.UnmarshalStrict(raw, object); strict != nil {
			object = new(T)
			if err := yaml.Unmarshal(raw, object); err != nil {
				return fmt.Errorf("%s: %w", where, explain(raw, func(rest []byte) error { return yaml.Unmarshal(rest, new(T)) }, err))
			}
			s.Notes = append(s.Notes, fmt.Sprintf("%s: %v", where,
				strings.TrimPrefix(strings.TrimPrefix(strict.Error(), "error unmarshaling JSON: while decoding JSON: "), "json: ")))
		}
		add(object)
		return nil
	}
}

// namespaced puts an object without a namespace into "default", as kubectl would.
func namespaced[T metav1.Object](o T) T {
	if o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return o
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
