package aws_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws"
	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const role = "KarpenterNodeRole-berth"

// world is a simulated AWS, an API and what a provider needs of both.
type world struct {
	*ec2sim.Server
	t      *testing.T
	url    string
	api    *fake.Clientset
	sink   *record.FakeRecorder
	change func(*aws.Config)
}

func newWorld(t *testing.T, change func(*ec2sim.Options)) *world {
	t.Helper()
	opts := ec2sim.Options{Seed: 1}
	if change != nil {
		change(&opts)
	}
	server, err := ec2sim.New(opts)
	require.NoError(t, err)
	url, err := server.Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return &world{Server: server, t: t, url: url, api: fake.NewSimpleClientset(), sink: record.NewFakeRecorder(1000)}
}

// process is one life of a provider.
type process struct {
	*aws.Provider
	informers externalversions.SharedInformerFactory
	stop      func()
}

// start runs a provider until stop or the end of the test.
func (w *world) start() *process {
	w.t.Helper()
	informers := externalversions.NewSharedInformerFactory(w.api, 0)
	cfg := aws.Config{
		AWS: awssdk.Config{
			Region: "us-east-1", BaseEndpoint: awssdk.String(w.url), RetryMaxAttempts: 2,
			Credentials: awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
				return awssdk.Credentials{AccessKeyID: "AKIATEST", SecretAccessKey: "secret"}, nil
			}),
		},
		ClusterName: "berth", ClusterEndpoint: "https://cluster.example", ClusterCA: "Y2E=", KubernetesVersion: "1.37",
		VMMemoryOverheadPercent: 0.075, Client: w.api, Informers: informers,
		Events: events.NewRecorder(w.sink, clock.RealClock{}), Sink: w.sink, Registry: prometheus.NewRegistry(),
	}
	if w.change != nil {
		w.change(&cfg)
	}
	provider, err := aws.New(cfg)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	var wg sync.WaitGroup
	wg.Go(func() { provider.Run(ctx) })
	stop := sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		informers.Shutdown()
	})
	w.t.Cleanup(stop)
	return &process{provider, informers, stop}
}

func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	require.Eventually(w.t, is, 20*time.Second, 10*time.Millisecond, what)
}

// class makes a class with the subnets and groups of the default world.
func (w *world) class(name string, change func(*ec2v1.EC2NodeClass)) *ec2v1.EC2NodeClass {
	w.t.Helper()
	discovery := map[string]string{"karpenter.sh/discovery": "berth"}
	nc := &ec2v1.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: apitypes.UID("uid-" + name), Generation: 1},
		Spec: ec2v1.EC2NodeClassSpec{
			AMISelectorTerms: []ec2v1.AMISelectorTerm{{Alias: "al2023@latest"}}, Role: role,
			SubnetSelectorTerms:        []ec2v1.SubnetSelectorTerm{{Tags: discovery}},
			SecurityGroupSelectorTerms: []ec2v1.SecurityGroupSelectorTerm{{Tags: discovery}},
			MetadataOptions: &ec2v1.MetadataOptions{HTTPEndpoint: new("enabled"), HTTPProtocolIPv6: new("disabled"),
				HTTPPutResponseHopLimit: new(int64(1)), HTTPTokens: new("required")},
		},
	}
	if change != nil {
		change(nc)
	}
	made, err := w.api.EC2V1().EC2NodeClasses().Create(w.t.Context(), nc, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return made
}

func (w *world) getClass(name string) *ec2v1.EC2NodeClass {
	w.t.Helper()
	nc, err := w.api.EC2V1().EC2NodeClasses().Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return nc
}

// waitReady waits until the class is ready at its generation and the provider has seen that it is.
func (w *world) waitReady(p *process, name string) {
	w.t.Helper()
	lister := p.informers.EC2().V1().EC2NodeClasses().Lister()
	w.eventually("class is ready", func() bool {
		nc, err := lister.Get(name)
		if err != nil || nc.Generation != w.getClass(name).Generation {
			return false
		}
		c := meta.FindStatusCondition(nc.Status.Conditions, ec2v1.ConditionReady)
		return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == nc.Generation
	})
	w.eventually("types are known", func() bool {
		_, err := p.InstanceTypes(w.t.Context(), pool(name))
		return err == nil && p.Ready() == nil
	})
}

// waitEvent waits for an event that contains the text.
func (w *world) waitEvent(text string) {
	w.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case e := <-w.sink.Events:
			if strings.Contains(e, text) {
				return
			}
		case <-deadline:
			w.t.Fatalf("no event with %q", text)
		}
	}
}

func (w *world) condition(name, kind string) metav1.Condition {
	w.t.Helper()
	if c := meta.FindStatusCondition(w.getClass(name).Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func ref(class string) *karpv1.NodeClassReference {
	return &karpv1.NodeClassReference{Group: ec2v1.Group, Kind: "EC2NodeClass", Name: class}
}

func pool(class string) *karpv1.NodePool {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	p.Spec.Template.Spec.NodeClassRef = ref(class)
	return p
}

func in(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// claims makes n claims of one shape that were created long after the provider started.
func (w *world) claims(class string, n int, reqs ...karpv1.NodeSelectorRequirementWithMinValues) []*karpv1.NodeClaim {
	w.t.Helper()
	out := make([]*karpv1.NodeClaim, n)
	for i := range out {
		claim := &karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%d", i), UID: apitypes.UID(fmt.Sprintf("claim-uid-%d", i)),
				CreationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)), Labels: map[string]string{karpv1.LabelNodePool: "default"}},
			Spec: karpv1.NodeClaimSpec{NodeClassRef: ref(class), Requirements: reqs},
		}
		made, err := w.api.KarpenterV1().NodeClaims().Create(w.t.Context(), claim, metav1.CreateOptions{})
		require.NoError(w.t, err)
		out[i] = made
	}
	return out
}

// replayed is the group as a new process finds it: created before it started.
func replayed(group cloud.Group) cloud.Group {
	claims := make([]*karpv1.NodeClaim, len(group.Claims))
	for i, c := range group.Claims {
		claims[i] = c.DeepCopy()
		claims[i].CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	}
	group.Claims = claims
	return group
}

// running are the instances that EC2 has and that are not ending.
func (w *world) running() []ec2sim.Instance {
	var out []ec2sim.Instance
	for _, i := range w.Instances() {
		if i.State == "pending" || i.State == "running" {
			out = append(out, i)
		}
	}
	return out
}
