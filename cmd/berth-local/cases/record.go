package cases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/cmd/berth-local/allinone"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
)

// record follows NodeClaims, pods and nodes by watches of its own.
type record struct {
	mu     sync.Mutex
	claims map[string]claimSeen
	before map[string]bool // claims that given.nodes asked for
	pods   map[string]podSeen
	// refused is why kubelets refused pods, by pod; daemon pods included, and pods that are gone.
	refused map[string]string
	// changed is when something of what settle waits for last changed.
	changed time.Time
	// unready counts NodeClaims that are neither initialized nor on their way out.
	unready map[string]bool

	mostClaims, mostBefore int
	edited                 time.Time // first updateNodePool step
	counts                 []countAt
}

func newRecord() *record {
	return &record{claims: map[string]claimSeen{}, before: map[string]bool{}, pods: map[string]podSeen{}, refused: map[string]string{}, unready: map[string]bool{}, changed: time.Now()}
}

// follow feeds the record until ctx ends; it returns once the watches run.
func (r *record) follow(ctx context.Context, cluster *allinone.Cluster) error {
	core := informers.NewSharedInformerFactory(cluster.Kube, 0)
	ours := externalversions.NewSharedInformerFactory(cluster.Karpenter, 0)
	pods, claims := core.Core().V1().Pods().Informer(), ours.Karpenter().V1().NodeClaims().Informer()
	err := errors.Join(
		handle(pods, func(p *corev1.Pod) { r.sawPod(p, false) }, func(p *corev1.Pod) { r.sawPod(p, true) }),
		handle(claims, func(c *karpv1.NodeClaim) { r.sawClaim(c, false) }, func(c *karpv1.NodeClaim) { r.sawClaim(c, true) }),
	)
	if err != nil {
		return fmt.Errorf("watch the cluster: %w", err)
	}
	core.StartWithContext(ctx)
	ours.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced, claims.HasSynced) {
		return context.Cause(ctx)
	}
	return nil
}

func handle[T any](informer cache.SharedIndexInformer, see, lose func(*T)) error {
	call := func(f func(*T)) func(any) {
		return func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if typed, ok := object.(*T); ok {
				f(typed)
			}
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: call(see), UpdateFunc: func(_, object any) { call(see)(object) }, DeleteFunc: call(lose),
	})
	return err
}

func (r *record) sawPod(pod *corev1.Pod, gone bool) {
	if pod.Namespace != metav1.NamespaceDefault {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := podSeen{node: pod.Spec.NodeName}
	if pod.Status.Phase == corev1.PodFailed {
		r.refused[pod.Name] = pod.Status.Reason + ": " + pod.Status.Message
	}
	old, known := r.pods[pod.Name]
	switch {
	case gone:
		delete(r.pods, pod.Name)
		r.changed = time.Now()
	case !known || old != seen:
		r.pods[pod.Name] = seen
		r.changed = time.Now()
	}
}

func (r *record) sawClaim(claim *karpv1.NodeClaim, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.claims[claim.Name]
	c.name, c.created = claim.Name, claim.CreationTimestamp.Time
	if r.claims[claim.Name].name == "" {
		c.created = time.Now() // the API's time has whole seconds
	} else {
		c.created = r.claims[claim.Name].created
	}
	c.pool = claim.Labels[karpv1.LabelNodePool]
	c.instanceType = claim.Labels[corev1.LabelInstanceTypeStable]
	c.zone = fromZones(claim.Labels[corev1.LabelTopologyZone])
	c.capacityType = claim.Labels[karpv1.LabelCapacityType]
	c.providerID = claim.Status.ProviderID
	c.launched = c.launched || c.providerID != "" || meta.IsStatusConditionTrue(claim.Status.Conditions, karpv1.ConditionLaunched)
	initialized := meta.IsStatusConditionTrue(claim.Status.Conditions, karpv1.ConditionInitialized)
	deleting := claim.DeletionTimestamp != nil || gone
	// A claim whose node never came is given up, not disrupted.
	c.disrupted = c.disrupted || deleting && initialized
	c.gone = gone
	r.unready[claim.Name] = !gone && (!initialized || deleting)
	r.claims[claim.Name] = c
	r.changed = time.Now()
	r.count()
}

// count notes how many NodeClaims of the case there are now; the caller holds the lock.
func (r *record) count() {
	n := 0
	for name, c := range r.claims {
		if !c.gone && !r.before[name] {
			n++
		}
	}
	r.mostClaims = max(r.mostClaims, n)
	if r.edited.IsZero() {
		r.mostBefore = max(r.mostBefore, n)
		return
	}
	r.counts = append(r.counts, countAt{after: time.Since(r.edited), claims: n})
}

func (r *record) poolEdited() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.edited.IsZero() {
		r.edited = time.Now()
		r.count()
	}
}

// startCase takes what there is as given: the launches of the case begin now.
func (r *record) startCase() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.claims {
		r.before[name] = true
	}
	r.mostClaims, r.mostBefore = 0, 0
}

// quiet tells whether nothing has changed for so long and no node is on its way.
func (r *record) quiet(long time.Duration) (bool, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := 0
	for _, unready := range r.unready {
		if unready {
			waiting++
		}
	}
	since := time.Since(r.changed)
	return waiting == 0 && since >= long, fmt.Sprintf("%d NodeClaims on their way, last change %s ago", waiting, since.Round(time.Millisecond))
}
