package ec2sim_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/aws/facts"
)

func TestWI01EndpointURLServesAllServices(t *testing.T) {
	s := newSim(t, nil)
	t.Setenv("AWS_ENDPOINT_URL", s.url)
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	cfg, err := config.LoadDefaultConfig(t.Context())
	require.NoError(t, err)

	_, err = ec2.NewFromConfig(cfg).DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	require.NoError(t, err)
	_, err = iam.NewFromConfig(cfg).ListInstanceProfiles(t.Context(), &iam.ListInstanceProfilesInput{})
	require.NoError(t, err)
	who, err := sts.NewFromConfig(cfg).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	require.NoError(t, err)
	require.Equal(t, "123456789012", *who.Account)
	_, err = ssm.NewFromConfig(cfg).GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String(al2023)})
	require.NoError(t, err)
	_, err = pricing.NewFromConfig(cfg).GetProducts(t.Context(), &pricing.GetProductsInput{ServiceCode: aws.String("AmazonEC2")})
	require.NoError(t, err)
	_, err = eks.NewFromConfig(cfg).DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("berth")})
	require.NoError(t, err)

	var services []string
	for _, c := range s.Calls() {
		services = append(services, c.Service)
		require.Equal(t, http.StatusOK, c.Status)
	}
	require.Equal(t, []string{"ec2", "iam", "sts", "ssm", "pricing", "eks"}, services)
}

func TestWI02DryRunProbe(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	_, err := s.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{DryRun: aws.Bool(true)})
	requireCode(t, err, "DryRunOperation")
	require.Equal(t, http.StatusPreconditionFailed, s.Calls()[0].Status)
}

func TestWI03ProbeUnauthorized(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.FailNext("DescribeInstanceTypes", "UnauthorizedOperation", 1)
	_, err := s.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{DryRun: aws.Bool(true)})
	requireCode(t, err, "UnauthorizedOperation")
}

func TestWI04InstanceTypesArePaged(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	pages, seen := 0, map[string]bool{}
	pager := ec2.NewDescribeInstanceTypesPaginator(s.ec2, &ec2.DescribeInstanceTypesInput{
		MaxResults: aws.Int32(100),
		Filters: []ec2types.Filter{
			{Name: aws.String("supported-virtualization-type"), Values: []string{"hvm"}},
			{Name: aws.String("processor-info.supported-architecture"), Values: []string{"x86_64", "arm64"}},
		},
	})
	for pager.HasMorePages() {
		page, err := pager.NextPage(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.InstanceTypes), 100)
		pages++
		for _, it := range page.InstanceTypes {
			require.False(t, seen[string(it.InstanceType)], "%s on two pages", it.InstanceType)
			seen[string(it.InstanceType)] = true
		}
	}
	want := 0
	for _, it := range facts.Types() {
		ok := it.Zones["us-east-1"] != "" && (strings.Contains(strings.Join(it.Architectures, ","), "x86_64") && !strings.Contains(it.Architectures[0], "mac") || it.Architectures[0] == "arm64")
		hvm := strings.Contains(strings.Join(it.VirtualizationTypes, ","), "hvm")
		if ok && hvm {
			want++
		}
	}
	require.Len(t, seen, want)
	require.Equal(t, (want+99)/100, pages)
}

func TestWI05EmptyTokenEndsPaging(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	out, err := s.ec2.DescribeInstanceTypeOfferings(t.Context(), &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: ec2types.LocationTypeAvailabilityZone, MaxResults: aws.Int32(1000),
		Filters: []ec2types.Filter{{Name: aws.String("instance-type"), Values: []string{"m5.large"}}}})
	require.NoError(t, err)
	require.Len(t, out.InstanceTypeOfferings, 5)
	require.NotNil(t, out.NextToken, "the element is there")
	require.Empty(t, *out.NextToken, "and empty")
	pager := ec2.NewDescribeInstanceTypeOfferingsPaginator(s.ec2, &ec2.DescribeInstanceTypeOfferingsInput{LocationType: ec2types.LocationTypeAvailabilityZone})
	total := 0
	for pager.HasMorePages() {
		page, err := pager.NextPage(t.Context())
		require.NoError(t, err)
		total += len(page.InstanceTypeOfferings)
	}
	want := 0
	for _, it := range facts.Types() {
		want += len(it.Zones["us-east-1"])
	}
	require.Equal(t, want, total)
}

func TestWI06FiltersAnd(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	filter := func(name string, values ...string) ec2types.Filter {
		return ec2types.Filter{Name: aws.String(name), Values: values}
	}
	tests := map[string]struct {
		filters []ec2types.Filter
		want    int
	}{
		"no filter gives all":                    {nil, 3},
		"tag value":                              {[]ec2types.Filter{filter("tag:karpenter.sh/discovery", "berth")}, 3},
		"two filters are and":                    {[]ec2types.Filter{filter("tag:karpenter.sh/discovery", "berth"), filter("tag-key", "nope")}, 0},
		"both match":                             {[]ec2types.Filter{filter("tag:karpenter.sh/discovery", "berth"), filter("tag-key", "Name")}, 3},
		"values of one filter are or":            {[]ec2types.Filter{filter("availability-zone", zoneA, zoneB)}, 2},
		"repeated tag-key filters are and":       {[]ec2types.Filter{filter("tag-key", "Name"), filter("tag-key", "other")}, 0},
		"tag value with wildcard":                {[]ec2types.Filter{filter("tag:Name", "*us-east-1?")}, 3},
		"star alone matches any value of a key":  {[]ec2types.Filter{filter("tag:karpenter.sh/discovery", "*")}, 3},
		"absent tag does not match a star":       {[]ec2types.Filter{filter("tag:absent", "*")}, 0},
		"escaped star is a star":                 {[]ec2types.Filter{filter("tag:karpenter.sh/discovery", `\*`)}, 0},
		"filter values compare with letter case": {[]ec2types.Filter{filter("tag:karpenter.sh/discovery", "Berth")}, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := s.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{Filters: tc.filters})
			require.NoError(t, err)
			require.Len(t, out.Subnets, tc.want)
		})
	}
	_, err := s.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{filter("colour", "red")}})
	requireCode(t, err, "InvalidParameterValue")
}

func TestWI07GroupNameWildcard(t *testing.T) {
	t.Parallel()
	s := newSim(t, func(o *ec2sim.Options) {
		w := ec2sim.DefaultWorld(facts.Default(), "us-east-1", "berth")
		w.SecurityGroups = append(w.SecurityGroups, ec2sim.SecurityGroup{ID: "sg-0123456789abcdef0", Name: "my-Public-group"})
		o.World = &w
	})
	out, err := s.ec2.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{
		Filters: []ec2types.Filter{{Name: aws.String("group-name"), Values: []string{"*Public*"}}}})
	require.NoError(t, err)
	require.Len(t, out.SecurityGroups, 1)
	require.Equal(t, "my-Public-group", *out.SecurityGroups[0].GroupName)
}

func TestWI21RetriesHideThrottling(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.FailNext("DescribeSubnets", "RequestLimitExceeded", 2)
	_, err := s.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	require.NoError(t, err)
	require.Equal(t, 3, s.CallCount("DescribeSubnets"))
}

func TestWI22ReservationIDsExcludeMaxResults(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	_, err := s.ec2.DescribeCapacityReservations(t.Context(), &ec2.DescribeCapacityReservationsInput{
		CapacityReservationIds: []string{"cr-0123456789abcdef0"}, MaxResults: aws.Int32(1000)})
	requireCode(t, err, "InvalidParameterCombination")
}

func TestWI23UnknownReservation(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	_, err := s.ec2.DescribeCapacityReservations(t.Context(), &ec2.DescribeCapacityReservationsInput{
		CapacityReservationIds: []string{"cr-0123456789abcdef0"}})
	requireCode(t, err, "InvalidCapacityReservationId.NotFound")
	out, err := s.ec2.DescribeCapacityReservations(t.Context(), &ec2.DescribeCapacityReservationsInput{MaxResults: aws.Int32(1000)})
	require.NoError(t, err)
	require.Empty(t, out.CapacityReservations)
}

func TestWI24UnknownParameter(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	client := ssm.NewFromConfig(s.config(1))
	_, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String("/no/such")})
	requireCode(t, err, "ParameterNotFound")
}

func TestParametersNameImages(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	client := ssm.NewFromConfig(s.config(1))
	const eksPath = "/aws/service/eks/optimized-ami/"
	tests := map[string]struct{ path, name, arch string }{
		"al2": {eksPath + "1.32/amazon-linux-2/recommended/image_id", "amazon-eks-node-1.32-v20261101", "x86_64"},
		"al2 arm64 pinned": {eksPath + "1.32/amazon-linux-2-arm64/amazon-eks-arm64-node-1.32-v20250701/image_id",
			"amazon-eks-arm64-node-1.32-v20250701", "arm64"},
		"al2 gpu": {eksPath + "1.30/amazon-linux-2-gpu/recommended/image_id", "amazon-eks-gpu-node-1.30-v20261101", "x86_64"},
		"al2023":  {al2023, "amazon-eks-node-al2023-x86_64-standard-1.37-v20261101", "x86_64"},
		"al2023 pinned to a version nobody asked for before": {
			eksPath + "1.33/amazon-linux-2023/arm64/nvidia/amazon-eks-node-al2023-arm64-nvidia-1.33-v20240102/image_id",
			"amazon-eks-node-al2023-arm64-nvidia-1.33-v20240102", "arm64"},
		"bottlerocket": {"/aws/service/bottlerocket/aws-k8s-1.37/arm64/latest/image_id",
			"bottlerocket-aws-k8s-1.37-arm64-v1.46.0-0badc0de", "arm64"},
		"bottlerocket nvidia pinned": {"/aws/service/bottlerocket/aws-k8s-1.33-nvidia/x86_64/1.40.0/image_id",
			"bottlerocket-aws-k8s-1.33-nvidia-x86_64-v1.40.0-0badc0de", "x86_64"},
		"windows": {"/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.33/image_id",
			"Windows_Server-2022-English-Core-EKS_Optimized-1.33-2026.11.11", "x86_64"},
		"by ARN": {"arn:aws:ssm:us-east-1::parameter" + al2023, "amazon-eks-node-al2023-x86_64-standard-1.37-v20261101", "x86_64"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String(tc.path)})
			require.NoError(t, err)
			images, err := s.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{IncludeDeprecated: aws.Bool(true),
				Filters: []ec2types.Filter{{Name: aws.String("image-id"), Values: []string{*out.Parameter.Value}},
					{Name: aws.String("state"), Values: []string{"available"}}}})
			require.NoError(t, err)
			require.Len(t, images.Images, 1)
			require.Equal(t, tc.name, *images.Images[0].Name)
			require.Equal(t, tc.arch, string(images.Images[0].Architecture))
		})
	}
	for name, path := range map[string]string{
		"al2 ends with 1.32":                    eksPath + "1.33/amazon-linux-2/recommended/image_id",
		"windows 2025 begins with 1.35":         "/aws/service/ami-windows-latest/Windows_Server-2025-English-Core-EKS_Optimized-1.34/image_id",
		"no arm64 neuron image":                 eksPath + "1.33/amazon-linux-2023/arm64/neuron/recommended/image_id",
		"versions of path and name differ":      eksPath + "1.33/amazon-linux-2023/arm64/standard/amazon-eks-node-al2023-arm64-standard-1.32-v20250701/image_id",
		"no such Kubernetes version":            eksPath + "1.99/amazon-linux-2023/arm64/standard/recommended/image_id",
		"bottlerocket version with a leading v": "/aws/service/bottlerocket/aws-k8s-1.33/x86_64/v1.40.0/image_id",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String(path)})
			requireCode(t, err, "ParameterNotFound")
		})
	}
}

func TestDeprecatedImagesAreHiddenUnlessAskedFor(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.PutImage(ec2sim.Image{ID: "ami-0123456789abcdef0", Name: "old", OwnerID: "111111111111", Deprecated: start.Add(-time.Hour)})
	in := &ec2.DescribeImagesInput{Filters: []ec2types.Filter{{Name: aws.String("name"), Values: []string{"old"}}}}
	out, err := s.ec2.DescribeImages(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, out.Images)
	in.IncludeDeprecated = aws.Bool(true)
	out, err = s.ec2.DescribeImages(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, out.Images, 1)
	in.Owners = []string{"self", "amazon"}
	out, err = s.ec2.DescribeImages(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, out.Images, "it belongs to somebody else")
}

func TestWI25QueueMissing(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/", strings.NewReader(`{"QueueName":"berth"}`))
	require.NoError(t, err)
	req.Header.Set("X-Amz-Target", "AmazonSQS.GetQueueUrl")
	req.Header.Set("X-Amzn-Query-Mode", "true")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	require.Equal(t, "AWS.SimpleQueueService.NonExistentQueue;Sender", resp.Header.Get("X-Amzn-Query-Error"))
	require.Contains(t, string(body), `"__type":"QueueDoesNotExist"`)
}

func TestWI29ProfileMissing(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	_, err := s.iam.GetInstanceProfile(t.Context(), &iam.GetInstanceProfileInput{InstanceProfileName: aws.String("nope")})
	requireCode(t, err, "NoSuchEntity")
	require.Equal(t, http.StatusNotFound, s.Calls()[0].Status)
}

func TestWI30RoleMissing(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	create := func() error {
		_, err := s.iam.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{
			InstanceProfileName: aws.String("p"), Path: aws.String("/karpenter/us-east-1/berth/uid/"),
			Tags: []iamtypes.Tag{{Key: aws.String("topology.kubernetes.io/region"), Value: aws.String("us-east-1")}}})
		return err
	}
	require.NoError(t, create())
	requireCode(t, create(), "EntityAlreadyExists")
	add := func(role string) error {
		_, err := s.iam.AddRoleToInstanceProfile(t.Context(), &iam.AddRoleToInstanceProfileInput{
			InstanceProfileName: aws.String("p"), RoleName: aws.String(role)})
		return err
	}
	require.Contains(t, requireCode(t, add("nobody"), "NoSuchEntity").ErrorMessage(), "role")
	require.NoError(t, add("KarpenterNodeRole-berth"))
	requireCode(t, add("KarpenterNodeRole-berth"), "LimitExceeded")

	got, err := s.iam.GetInstanceProfile(t.Context(), &iam.GetInstanceProfileInput{InstanceProfileName: aws.String("p")})
	require.NoError(t, err)
	require.Equal(t, "/karpenter/us-east-1/berth/uid/", *got.InstanceProfile.Path)
	require.Equal(t, "KarpenterNodeRole-berth", *got.InstanceProfile.Roles[0].RoleName)
	require.Len(t, got.InstanceProfile.Tags, 1)

	_, err = s.iam.DeleteInstanceProfile(t.Context(), &iam.DeleteInstanceProfileInput{InstanceProfileName: aws.String("p")})
	requireCode(t, err, "DeleteConflict")
	_, err = s.iam.RemoveRoleFromInstanceProfile(t.Context(), &iam.RemoveRoleFromInstanceProfileInput{
		InstanceProfileName: aws.String("p"), RoleName: aws.String("KarpenterNodeRole-berth")})
	require.NoError(t, err)
	_, err = s.iam.DeleteInstanceProfile(t.Context(), &iam.DeleteInstanceProfileInput{InstanceProfileName: aws.String("p")})
	require.NoError(t, err)
	require.Empty(t, s.Profiles())
}

func TestWI31ProfileListIsTruncated(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	for i := range 5 {
		_, err := s.iam.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{
			InstanceProfileName: aws.String(fmt.Sprintf("p%d", i)), Path: aws.String("/karpenter/a/")})
		require.NoError(t, err)
	}
	_, err := s.iam.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String("other")})
	require.NoError(t, err)
	pager := iam.NewListInstanceProfilesPaginator(s.iam, &iam.ListInstanceProfilesInput{PathPrefix: aws.String("/karpenter/"), MaxItems: aws.Int32(2)})
	var names []string
	pages := 0
	for pager.HasMorePages() {
		page, err := pager.NextPage(t.Context())
		require.NoError(t, err)
		pages++
		for _, p := range page.InstanceProfiles {
			names = append(names, *p.InstanceProfileName)
		}
	}
	require.Equal(t, []string{"p0", "p1", "p2", "p3", "p4"}, names)
	require.Equal(t, 3, pages)
}

func TestWI32ClusterWithIPv6Only(t *testing.T) {
	t.Parallel()
	s := newSim(t, func(o *ec2sim.Options) { o.ServiceIPv6CIDR, o.ClusterEndpoint = "fd00::/108", "https://api" })
	client := eks.NewFromConfig(s.config(1))
	out, err := client.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("berth")})
	require.NoError(t, err)
	require.Nil(t, out.Cluster.KubernetesNetworkConfig.ServiceIpv4Cidr)
	require.Equal(t, "fd00::/108", *out.Cluster.KubernetesNetworkConfig.ServiceIpv6Cidr)
	require.Equal(t, "https://api", *out.Cluster.Endpoint)
	require.Equal(t, "1.37", *out.Cluster.Version)
	require.Equal(t, "arn:aws:eks:us-east-1:123456789012:cluster/berth", *out.Cluster.Arn)
	_, err = client.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("other")})
	requireCode(t, err, "ResourceNotFoundException")
}

func TestPricingProducts(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	client := pricing.NewFromConfig(s.config(1))
	term := func(field, value string) pricingtypes.Filter {
		return pricingtypes.Filter{Type: pricingtypes.FilterTypeTermMatch, Field: aws.String(field), Value: aws.String(value)}
	}
	prices := func(tenancy, family string) map[string]string {
		found := map[string]string{}
		pager := pricing.NewGetProductsPaginator(client, &pricing.GetProductsInput{ServiceCode: aws.String("AmazonEC2"), MaxResults: aws.Int32(100),
			Filters: []pricingtypes.Filter{term("regionCode", "us-east-1"), term("serviceCode", "AmazonEC2"), term("preInstalledSw", "NA"),
				term("operatingSystem", "Linux"), term("capacitystatus", "Used"), term("marketoption", "OnDemand"),
				term("tenancy", tenancy), term("productFamily", family)}})
		for pager.HasMorePages() {
			page, err := pager.NextPage(t.Context())
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.PriceList), 100)
			for _, text := range page.PriceList {
				var item struct {
					Product struct{ Attributes struct{ InstanceType string } }
					Terms   struct {
						OnDemand map[string]struct {
							PriceDimensions map[string]struct{ PricePerUnit map[string]string }
						}
					}
				}
				require.NoError(t, json.Unmarshal([]byte(text), &item))
				for _, offer := range item.Terms.OnDemand {
					for _, d := range offer.PriceDimensions {
						found[item.Product.Attributes.InstanceType] = d.PricePerUnit["USD"]
					}
				}
			}
		}
		return found
	}
	shared, metal := prices("Shared", "Compute Instance"), prices("Dedicated", "Compute Instance (bare metal)")
	require.Equal(t, "0.0960000000", shared["m5.large"])
	require.Equal(t, "4.0800000000", metal["c5.metal"])
	require.NotContains(t, shared, "c5.metal")
	want := 0
	for _, it := range facts.Types() {
		if _, ok := facts.OnDemandPrice("us-east-1", it.Name); ok {
			want++
		}
	}
	require.Len(t, shared, want-len(metal))
}

func products(t *testing.T, s *sim, region string) []string {
	t.Helper()
	out, err := pricing.NewFromConfig(s.config(1)).GetProducts(t.Context(), &pricing.GetProductsInput{ServiceCode: aws.String("AmazonEC2"),
		Filters: []pricingtypes.Filter{
			{Type: pricingtypes.FilterTypeTermMatch, Field: aws.String("regionCode"), Value: aws.String(region)},
			{Type: pricingtypes.FilterTypeTermMatch, Field: aws.String("instanceType"), Value: aws.String("m5.large")}}})
	require.NoError(t, err)
	return out.PriceList
}

func TestWI33PricesInChinaAreInCNY(t *testing.T) {
	t.Parallel()
	data := facts.Default().Data()
	data.OnDemand = map[string]map[string]float64{"cn-north-1": {"m5.large": 1.32}}
	catalog, err := facts.NewCatalog(data)
	require.NoError(t, err)
	s := newSim(t, func(o *ec2sim.Options) { o.Catalog = &catalog })
	list := products(t, s, "cn-north-1")
	require.Len(t, list, 1)
	require.Contains(t, list[0], `{"CNY":"1.3200000000"}`)
}

func TestWI34PriceOfZero(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.SetOnDemandPrice("m5.large", 0)
	list := products(t, s, "us-east-1")
	require.Len(t, list, 1)
	require.Contains(t, list[0], `{"USD":"0.0000000000"}`)
}

func TestSpotPriceHistory(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	pager := ec2.NewDescribeSpotPriceHistoryPaginator(s.ec2, &ec2.DescribeSpotPriceHistoryInput{
		ProductDescriptions: []string{"Linux/UNIX"}, StartTime: aws.Time(start), MaxResults: aws.Int32(2000)})
	found := map[pool]string{}
	for pager.HasMorePages() {
		page, err := pager.NextPage(t.Context())
		require.NoError(t, err)
		for _, p := range page.SpotPriceHistory {
			require.NotNil(t, p.Timestamp)
			found[pool{string(p.InstanceType), *p.AvailabilityZone}] = *p.SpotPrice
		}
	}
	require.Len(t, found, 6191)
	require.Equal(t, "0.037200", found[pool{"m5.large", zoneA}])
	s.SetSpotPrice("m5.large", zoneA, 0.5)
	out, err := s.ec2.DescribeSpotPriceHistory(t.Context(), &ec2.DescribeSpotPriceHistoryInput{
		InstanceTypes: []ec2types.InstanceType{"m5.large"}, AvailabilityZone: aws.String(zoneA)})
	require.NoError(t, err)
	require.Len(t, out.SpotPriceHistory, 1)
	require.Equal(t, "0.500000", *out.SpotPriceHistory[0].SpotPrice)
}

func TestWI38PlacementGroups(t *testing.T) {
	t.Parallel()
	s := newSim(t, func(o *ec2sim.Options) {
		w := ec2sim.DefaultWorld(facts.Default(), "us-east-1", "berth")
		w.PlacementGroups = []ec2sim.PlacementGroup{{ID: "pg-1", Name: "web", Strategy: "spread", State: "deleting"}}
		o.World = &w
	})
	available := []ec2types.Filter{{Name: aws.String("state"), Values: []string{"available"}}}
	out, err := s.ec2.DescribePlacementGroups(t.Context(), &ec2.DescribePlacementGroupsInput{GroupNames: []string{"web"}, Filters: available})
	require.NoError(t, err)
	require.Empty(t, out.PlacementGroups)
	_, err = s.ec2.DescribePlacementGroups(t.Context(), &ec2.DescribePlacementGroupsInput{GroupNames: []string{"nope"}, Filters: available})
	requireCode(t, err, "InvalidPlacementGroup.Unknown")
}

func (s *sim) typeInfo(name string) ec2types.InstanceTypeInfo {
	s.t.Helper()
	out, err := s.ec2.DescribeInstanceTypes(s.t.Context(), &ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{ec2types.InstanceType(name)}})
	require.NoError(s.t, err)
	require.Len(s.t, out.InstanceTypes, 1)
	return out.InstanceTypes[0]
}

func TestWI39MetalHasNoHypervisor(t *testing.T) {
	t.Parallel()
	it := newSim(t, nil).typeInfo("c5.metal")
	require.Empty(t, it.Hypervisor)
	require.True(t, *it.BareMetal)
}

func TestWI40MissingDeviceInfo(t *testing.T) {
	t.Parallel()
	it := newSim(t, nil).typeInfo("m5.large")
	require.Nil(t, it.GpuInfo)
	require.Nil(t, it.NeuronInfo)
	require.Nil(t, it.InferenceAcceleratorInfo)
	require.Nil(t, it.InstanceStorageInfo)
	require.Nil(t, it.NetworkInfo.EfaInfo)
	require.EqualValues(t, 2, *it.VCpuInfo.DefaultVCpus)
	require.EqualValues(t, 8192, *it.MemoryInfo.SizeInMiB)
	require.EqualValues(t, 3, *it.NetworkInfo.NetworkCards[*it.NetworkInfo.DefaultNetworkCardIndex].MaximumNetworkInterfaces)
	require.EqualValues(t, 10, *it.NetworkInfo.Ipv4AddressesPerInterface)
	require.EqualValues(t, 4750, *it.EbsInfo.EbsOptimizedInfo.MaximumBandwidthInMbps)
	require.InDelta(t, 3.1, *it.ProcessorInfo.SustainedClockSpeedInGhz, 1e-9)
}

func TestInstanceTypeDevices(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	p5 := s.typeInfo("p5.48xlarge")
	require.Len(t, p5.NetworkInfo.NetworkCards, 32)
	require.EqualValues(t, 32, *p5.NetworkInfo.EfaInfo.MaximumEfaInterfaces)
	require.Equal(t, "NVIDIA", *p5.GpuInfo.Gpus[0].Manufacturer)
	require.EqualValues(t, 8, *p5.GpuInfo.Gpus[0].Count)
	require.EqualValues(t, 81920, *p5.GpuInfo.Gpus[0].MemoryInfo.SizeInMiB)
	require.EqualValues(t, 30400, *p5.InstanceStorageInfo.TotalSizeInGB)
	inf1 := s.typeInfo("inf1.xlarge")
	require.Equal(t, "Inferentia", *inf1.InferenceAcceleratorInfo.Accelerators[0].Name)
	require.EqualValues(t, 4, *inf1.NeuronInfo.NeuronDevices[0].CoreInfo.Count)
	_, err := s.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{"m99.large"}})
	requireCode(t, err, "InvalidInstanceType")
}

func TestWI41WebIdentity(t *testing.T) {
	s := newSim(t, nil)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("eyJhbGciOiJub25lIn0.e30."), 0o600))
	t.Setenv("AWS_ENDPOINT_URL", s.url)
	t.Setenv("AWS_ENDPOINT_URL_STS", s.url) // the SDK makes this one client before it reads AWS_ENDPOINT_URL
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/controller")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	cfg, err := config.LoadDefaultConfig(t.Context())
	require.NoError(t, err)
	_, err = ec2.NewFromConfig(cfg).DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	require.NoError(t, err)
	calls := s.Calls()
	require.Len(t, calls, 2)
	require.Equal(t, "AssumeRoleWithWebIdentity", calls[0].Action)
	require.Equal(t, "DescribeSubnets", calls[1].Action)
	require.True(t, strings.HasPrefix(calls[1].Token, "session-"), calls[1].Token)
}

func TestWI42RegionFromIMDS(t *testing.T) {
	s := newSim(t, func(o *ec2sim.Options) { o.Region = "eu-west-1" })
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s.url)
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithEC2IMDSRegion())
	require.NoError(t, err)
	require.Equal(t, "eu-west-1", cfg.Region)
}

func TestWrongRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	post := func(body string, header ...string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/", strings.NewReader(body))
		require.NoError(t, err)
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	tests := map[string]struct {
		body   string
		header []string
		status int
		want   string
	}{
		"unknown EC2 action":     {"Action=Fly&Version=2016-11-15", nil, 400, "<Code>InvalidAction</Code>"},
		"unknown IAM action":     {"Action=Fly&Version=2010-05-08", nil, 400, "<ErrorResponse"},
		"no action":              {"Version=2016-11-15", nil, 400, "<Code>MissingAction</Code>"},
		"empty body":             {"", nil, 400, "<Code>MissingAction</Code>"},
		"unknown version":        {"Action=DescribeSubnets&Version=1999-01-01", nil, 400, "<Code>NoSuchVersion</Code>"},
		"bad escape":             {"Action=%zz", nil, 400, "<Code>MalformedQueryString</Code>"},
		"member without name":    {"Action=DescribeSubnets&Filter..Name=x&Version=2016-11-15", nil, 400, "<Code>MalformedQueryString</Code>"},
		"member nested too deep": {"Action=x&" + strings.Repeat("a.", 40) + "a=1", nil, 400, "<Code>MalformedQueryString</Code>"},
		"number that is none":    {"Action=DescribeSubnets&Version=2016-11-15&MaxResults=many", nil, 400, "<Code>InvalidParameterValue</Code>"},
		"page size out of range": {"Action=DescribeInstanceTypes&Version=2016-11-15&MaxResults=101", nil, 400, "between 5 and 100"},
		"token of nobody":        {"Action=DescribeInstanceTypes&Version=2016-11-15&NextToken=abc", nil, 400, "<Code>InvalidNextToken</Code>"},
		"body too long":          {"Action=x&a=" + strings.Repeat("x", 5<<20), nil, 413, "<Code>RequestEntityTooLarge</Code>"},
		"unknown target":         {"{}", []string{"X-Amz-Target", "Nobody.Do"}, 400, `"__type":"UnknownOperationException"`},
		"unknown JSON operation": {"{}", []string{"X-Amz-Target", "AmazonSSM.Fly"}, 404, `"__type":"UnknownOperationException"`},
		"body that is no JSON":   {"{", []string{"X-Amz-Target", "AmazonSSM.GetParameter"}, 400, `"__type":"SerializationException"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			status, text := post(tc.body, tc.header...)
			require.Equal(t, tc.status, status, text)
			require.Contains(t, text, tc.want)
		})
	}
}
