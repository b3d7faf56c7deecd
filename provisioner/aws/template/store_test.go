package template_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/template"
)

func spec(name, data string) template.Spec {
	nc := &ec2v1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	nc.Spec.AMISelectorTerms = []ec2v1.AMISelectorTerm{{Alias: "al2023@latest"}}
	nc.Status.InstanceProfile = "p"
	nc.Status.SecurityGroups = []ec2v1.SecurityGroup{{ID: "sg-1"}}
	return template.Spec{Class: nc, Region: "us-east-1", ImageID: "ami-0123456789abcdef0", UserData: data, CapacityType: "spot", Tenancy: "default",
		Tags: class.LaunchTags(nc, "berth", "default")}
}

func names(t *testing.T, client *ec2.Client) []string {
	t.Helper()
	out, err := client.DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{})
	require.NoError(t, err)
	var all []string
	for _, l := range out.LaunchTemplates {
		all = append(all, aws.ToString(l.LaunchTemplateName))
	}
	return all
}

func TestEnsureNamesByContent(t *testing.T) {
	t.Parallel()
	server, clock, cfg := newSim(t, nil)
	s := template.NewStore(ec2.NewFromConfig(cfg), clock, "berth", template.NewMetrics(prometheus.NewRegistry()))
	a, err := s.Ensure(t.Context(), []template.Spec{spec("c", "one"), spec("c", "two"), spec("c", "one")})
	require.NoError(t, err)
	require.Equal(t, a[0], a[2])
	require.NotEqual(t, a[0], a[1])
	require.Regexp(t, `^karpenter\.k8s\.aws/[0-9]+$`, a[0])
	require.Equal(t, 2, server.CallCount("CreateLaunchTemplate"))
	b, err := s.Ensure(t.Context(), []template.Spec{spec("c", "one")})
	require.NoError(t, err)
	require.Equal(t, a[0], b[0])
	require.Equal(t, 1, server.CallCount("DescribeLaunchTemplates"), "known templates are not asked for")

	other := template.NewStore(ec2.NewFromConfig(cfg), clock, "berth", template.NewMetrics(prometheus.NewRegistry()))
	b, err = other.Ensure(t.Context(), []template.Spec{spec("c", "one")})
	require.NoError(t, err)
	require.Equal(t, a[0], b[0])
	require.Equal(t, 2, server.CallCount("CreateLaunchTemplate"), "another process finds it")
}

func TestLA23IdleTemplatesGo(t *testing.T) {
	t.Parallel()
	_, clock, cfg := newSim(t, nil)
	client := ec2.NewFromConfig(cfg)
	s := template.NewStore(client, clock, "berth", template.NewMetrics(prometheus.NewRegistry()))
	_, err := s.Ensure(t.Context(), []template.Spec{spec("c", "one"), spec("c", "two")})
	require.NoError(t, err)
	clock.Step(40 * time.Second)
	kept, err := s.Ensure(t.Context(), []template.Spec{spec("c", "two")})
	require.NoError(t, err)
	clock.Step(40 * time.Second)
	require.NoError(t, s.Sweep(t.Context()))
	require.Equal(t, kept, names(t, client), "use keeps it")
	clock.Step(40 * time.Second)
	require.NoError(t, s.Sweep(t.Context()))
	require.Empty(t, names(t, client))
	_, err = s.Ensure(t.Context(), []template.Spec{spec("c", "one")})
	require.NoError(t, err, "it can come back")
}

func TestLA24TemplatesOfEarlierProcessesGo(t *testing.T) {
	t.Parallel()
	_, clock, cfg := newSim(t, nil)
	client := ec2.NewFromConfig(cfg)
	first := template.NewStore(client, clock, "berth", template.NewMetrics(prometheus.NewRegistry()))
	_, err := first.Ensure(t.Context(), []template.Spec{spec("c", "one")})
	require.NoError(t, err)
	second := template.NewStore(client, clock, "berth", template.NewMetrics(prometheus.NewRegistry()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { second.Run(ctx); close(done) }()
	require.Eventually(t, func() bool {
		clock.Step(10 * time.Second)
		return len(names(t, client)) == 0
	}, 10*time.Second, 10*time.Millisecond)
	cancel()
	<-done
}

func TestAP41DeleteAllOfAClass(t *testing.T) {
	t.Parallel()
	_, clock, cfg := newSim(t, nil)
	client := ec2.NewFromConfig(cfg)
	s := template.NewStore(client, clock, "berth", template.NewMetrics(prometheus.NewRegistry()))
	made, err := s.Ensure(t.Context(), []template.Spec{spec("c", "one"), spec("d", "one")})
	require.NoError(t, err)
	require.NoError(t, s.DeleteAll(t.Context(), spec("c", "").Class))
	require.Equal(t, made[1:], names(t, client))
}
