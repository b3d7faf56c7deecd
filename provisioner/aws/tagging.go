package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/instance"
	"github.com/berth-dev/berth/provisioner/cloud"
)

const (
	// taggers is how many claims are worked on at once: they wait together for one DescribeInstances.
	taggers = 20
	// tagRate and tagBurst stay within the rate at which EC2 refills CreateTags.
	tagRate, tagBurst = 8, 40
)

// tagger puts a claim's name and its node's name on its instance.
type tagger struct {
	p     *Provider
	queue workqueue.TypedRateLimitingInterface[string]
	rate  flowcontrol.RateLimiter
}

func newTagger(p *Provider) *tagger {
	return &tagger{p: p, rate: flowcontrol.NewTokenBucketRateLimiter(tagRate, tagBurst),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "instance-tagging"})}
}

func (t *tagger) handler() cache.ResourceEventHandler {
	see := func(object any) {
		if claim, ok := object.(*karpv1.NodeClaim); ok && wantsTags(claim) {
			t.queue.Add(claim.Name)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(before, now any) {
		b, ok1 := before.(*karpv1.NodeClaim)
		n, ok2 := now.(*karpv1.NodeClaim)
		if ok1 && ok2 && b.Status.ProviderID == n.Status.ProviderID && b.Status.NodeName == n.Status.NodeName {
			return
		}
		see(now)
	}}
}

func isTagged(claim *karpv1.NodeClaim) bool {
	return claim.Annotations[ec2v1.AnnotationTagged] == karpv1.ValueTrue && claim.Annotations[ec2v1.AnnotationClusterNameTagged] == karpv1.ValueTrue
}

func wantsTags(claim *karpv1.NodeClaim) bool {
	return claim.DeletionTimestamp == nil && claim.Status.ProviderID != "" && !isTagged(claim) &&
		claim.Spec.NodeClassRef != nil && claim.Spec.NodeClassRef.Group == ec2v1.Group
}

func (t *tagger) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, t.queue.ShutDown)
	defer stop()
	var wg sync.WaitGroup
	for range taggers {
		wg.Go(func() {
			for name, end := t.queue.Get(); !end && ctx.Err() == nil; name, end = t.queue.Get() {
				switch err := t.tag(ctx, name); {
				case ctx.Err() != nil:
				case err != nil:
					klog.FromContext(ctx).V(2).Info("Tagging instance failed, will retry", "nodeClaim", klog.KRef("", name), "err", err)
					t.queue.AddRateLimited(name)
				default:
					t.queue.Forget(name)
				}
				t.queue.Done(name)
			}
		})
	}
	wg.Wait()
}

var errNameless = errors.New("EC2 does not tell the name of the instance yet")

func (t *tagger) tag(ctx context.Context, name string) error {
	claim, err := t.p.claims.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !wantsTags(claim) {
		return err
	}
	id := instance.IDOf(claim.Status.ProviderID)
	i, err := t.p.known(ctx, id)
	if err == nil && i.NodeName == "" {
		i, err = t.p.describe(ctx, id)
	}
	switch {
	case cloud.IsNotFound(err) && claim.Status.NodeName != "":
		return nil // it was there and is gone
	case err != nil:
		return err
	case i.NodeName == "" && claim.Status.NodeName == "":
		return errNameless
	}
	node := claim.Status.NodeName
	if node == "" {
		node = i.NodeName
	}
	missing := map[string]string{}
	for key, value := range map[string]string{ec2v1.TagName: node, ec2v1.TagNodeClaim: claim.Name, ec2v1.TagEKSClusterName: t.p.cfg.ClusterName} {
		if _, ok := i.Tags[key]; !ok {
			missing[key] = value
		}
	}
	if len(missing) > 0 {
		if err := t.rate.Wait(ctx); err != nil {
			return err
		}
		if err := t.p.instances.Tag(ctx, id, missing); err != nil {
			return err
		}
		t.p.noteTags(id, missing)
	}
	if claim.Status.NodeName == "" {
		return nil // the annotation comes with registration, when the claim is written anyway
	}
	return t.annotate(ctx, claim)
}

func (t *tagger) annotate(ctx context.Context, claim *karpv1.NodeClaim) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		ec2v1.AnnotationTagged: karpv1.ValueTrue, ec2v1.AnnotationClusterNameTagged: karpv1.ValueTrue,
	}}})
	if err != nil {
		return fmt.Errorf("encode patch of NodeClaim %s: %w", claim.Name, err)
	}
	_, err = t.p.cfg.Client.KarpenterV1().NodeClaims().Patch(ctx, claim.Name, apitypes.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch NodeClaim %s: %w", claim.Name, err)
	}
	return nil
}

// noteTags keeps what was last seen of an instance true.
func (p *Provider) noteTags(id string, tags map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.seen[id]
	if old == nil {
		return
	}
	changed := *old
	changed.Tags = maps.Clone(old.Tags)
	maps.Copy(changed.Tags, tags)
	p.seen[id] = &changed
}
