package wirefuzz

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
)

func post(server http.Handler, body, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	if target != "" {
		r.Header.Set("X-Amz-Target", target)
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w
}

const fleet = "Action=CreateFleet&Version=2016-11-15&Type=instant&TargetCapacitySpecification.TotalTargetCapacity=2" +
	"&TargetCapacitySpecification.DefaultTargetCapacityType=spot&LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName=node" +
	"&LaunchTemplateConfigs.1.Overrides.1.InstanceType=m5.large"

// FuzzServe sends any body and target to the server: it answers and never panics.
func FuzzServe(f *testing.F) {
	for _, action := range []string{
		"CreateFleet", "CreateLaunchTemplate", "CreateTags", "DeleteLaunchTemplate", "DescribeAvailabilityZones",
		"DescribeCapacityReservations", "DescribeImages", "DescribeInstances", "DescribeInstanceStatus", "DescribeInstanceTypes",
		"DescribeInstanceTypeOfferings", "DescribeLaunchTemplates", "DescribePlacementGroups", "DescribeSecurityGroups",
		"DescribeSpotPriceHistory", "DescribeSubnets", "RunInstances", "TerminateInstances",
	} {
		f.Add("Action="+action+"&Version=2016-11-15&Filter.1.Name=tag:a&Filter.1.Value.1=%2A&MaxResults=5&NextToken=x", "")
		f.Add("Action="+action+"&Version=2016-11-15&InstanceId.1=i-0&ResourceId.1=lt-1&Tag.1.Key=a", "")
	}
	for _, action := range []string{"AddRoleToInstanceProfile", "CreateInstanceProfile", "DeleteInstanceProfile",
		"GetInstanceProfile", "ListInstanceProfiles", "RemoveRoleFromInstanceProfile"} {
		f.Add("Action="+action+"&Version=2010-05-08&InstanceProfileName=p&RoleName=r&Path=/a/&Tags.member.1.Key=k", "")
	}
	f.Add("Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn:aws:iam::1:role/r&RoleSessionName=s&WebIdentityToken=t", "")
	f.Add("Action=CreateLaunchTemplate&Version=2016-11-15&LaunchTemplateName=node&LaunchTemplateData.UserData=aGk=&LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize=20", "")
	f.Add(fleet, "")
	f.Add(`{"Name":"/aws/service/eks"}`, "AmazonSSM.GetParameter")
	f.Add(`{"ServiceCode":"AmazonEC2","Filters":[{"Type":"TERM_MATCH"}],"NextToken":"MS5wcm9kdWN0cw=="}`, "AWSPriceListService.GetProducts")
	f.Add(`{"QueueName":"q"}`, "AmazonSQS.GetQueueUrl")
	server, err := ec2sim.New(ec2sim.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, body, target string) {
		if w := post(server, body, target); w.Code < 200 || w.Body.Len() == 0 {
			t.Fatalf("status %d, %d bytes", w.Code, w.Body.Len())
		}
	})
}

// Callers, the clock loop, subscribers and the Go methods at the same time; run
// it with -race.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	server, err := ec2sim.New(ec2sim.Options{BootDelay: 10 * time.Millisecond, Throttle: true, Latency: time.Microsecond})
	require.NoError(t, err)
	image := "ami-0123456789abcdef0"
	server.PutImage(ec2sim.Image{ID: image, Name: "n"})
	w := post(server, "Action=CreateLaunchTemplate&Version=2016-11-15&LaunchTemplateName=node&LaunchTemplateData.ImageId="+image, "")
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	subnets := post(server, "Action=DescribeSubnets&Version=2016-11-15&Filter.1.Name=availability-zone&Filter.1.Value.1=us-east-1a", "").Body.String()
	_, rest, _ := strings.Cut(subnets, "<subnetId>")
	subnet, _, _ := strings.Cut(rest, "<")

	ctx, cancel := context.WithCancel(t.Context())
	running, gone := 0, 0
	var readers, callers sync.WaitGroup
	events := server.Subscribe(ctx)
	readers.Go(func() {
		for e := range events {
			switch e.Kind {
			case ec2sim.Running:
				running++
			case ec2sim.Gone:
				gone++
			}
			if gone == 40 {
				return
			}
		}
	})
	for n := range 8 {
		callers.Go(func() {
			for i := range 5 {
				body := fmt.Sprintf("%s&LaunchTemplateConfigs.1.Overrides.1.SubnetId=%s&ClientToken=%d-%d", fleet, subnet, n, i)
				if w := post(server, body, ""); w.Code != http.StatusOK {
					t.Errorf("fleet: %s", w.Body)
				}
				for _, action := range []string{"DescribeInstances", "DescribeInstanceTypes", "DescribeImages"} {
					post(server, "Action="+action+"&Version=2016-11-15", "")
				}
				server.SetInsufficientCapacity("c5.large", "", "", i%2 == 0)
				_ = server.Calls()
			}
		})
	}
	callers.Wait()
	list := server.Instances()
	require.Len(t, list, 80)
	for _, i := range list[:40] {
		require.True(t, server.Terminate(i.ID))
	}
	readers.Wait()
	require.LessOrEqual(t, running, 80)
	cancel()
	server.Close()
	_, open := <-server.Subscribe(t.Context())
	require.False(t, open, "a closed server gives a closed channel")
	_, err = server.Start("127.0.0.1:0")
	require.ErrorContains(t, err, "closed")
}
