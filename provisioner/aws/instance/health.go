package instance

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/berth-dev/berth/provisioner/cloud"
)

// unhealthy are the questions that DescribeInstanceStatus is asked; filters of one call are ANDed, so each
// is a call of its own.
var unhealthy = []ec2types.Filter{
	{Name: aws.String("instance-status.status"), Values: []string{"impaired"}},
	{Name: aws.String("system-status.status"), Values: []string{"impaired"}},
	{Name: aws.String("event.code"), Values: []string{"instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"}},
}

// Ailments returns what EC2 says is wrong with any instance of the account and region.
func Ailments(ctx context.Context, api ec2.DescribeInstanceStatusAPIClient) ([]cloud.Ailment, error) {
	var out []cloud.Ailment
	seen := map[string]bool{}
	for i := range unhealthy {
		pages := ec2.NewDescribeInstanceStatusPaginator(api, &ec2.DescribeInstanceStatusInput{Filters: unhealthy[i : i+1]})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("describe instance status (permission ec2:DescribeInstanceStatus): %w", err)
			}
			for j := range page.InstanceStatuses {
				s := &page.InstanceStatuses[j]
				if id := aws.ToString(s.InstanceId); id != "" && !seen[id] {
					seen[id] = true
					out = append(out, ailmentsOf(id, s)...)
				}
			}
		}
	}
	return out, nil
}

func ailmentsOf(id string, s *ec2types.InstanceStatus) []cloud.Ailment {
	var out []cloud.Ailment
	failed := func(category cloud.AilmentCategory, summary *ec2types.InstanceStatusSummary) {
		if summary == nil {
			return
		}
		for _, d := range summary.Details {
			if d.Status == ec2types.StatusTypeFailed {
				out = append(out, cloud.Ailment{InstanceID: id, Category: category, Since: aws.ToTime(d.ImpairedSince)})
				return
			}
		}
	}
	failed(cloud.InstanceCheckFailed, s.InstanceStatus)
	failed(cloud.SystemCheckFailed, s.SystemStatus)
	for _, e := range s.Events {
		// EC2 lists events for a while after they are over.
		if text := aws.ToString(e.Description); !strings.HasPrefix(text, "[Completed]") && !strings.HasPrefix(text, "[Canceled]") {
			out = append(out, cloud.Ailment{InstanceID: id, Category: cloud.MaintenanceScheduled})
			break
		}
	}
	return out
}
