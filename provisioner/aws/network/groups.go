package network

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
)

// ResolveGroups asks EC2 for the security groups that match any of the terms, by id.
func ResolveGroups(ctx context.Context, api ec2.DescribeSecurityGroupsAPIClient, terms []ec2v1.SecurityGroupSelectorTerm) ([]ec2v1.SecurityGroup, error) {
	names := map[string]string{}
	for _, filters := range groupFilters(terms) {
		pages := ec2.NewDescribeSecurityGroupsPaginator(api, &ec2.DescribeSecurityGroupsInput{Filters: filters, MaxResults: aws.Int32(pageSize)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("describe security groups: %w", err)
			}
			for _, g := range page.SecurityGroups {
				names[aws.ToString(g.GroupId)] = aws.ToString(g.GroupName)
			}
		}
	}
	groups := make([]ec2v1.SecurityGroup, 0, len(names))
	for _, id := range slices.SortedFunc(maps.Keys(names), cmp.Compare[string]) {
		groups = append(groups, ec2v1.SecurityGroup{ID: id, Name: names[id]})
	}
	return groups, nil
}

// groupFilters makes one query of all ids, one of all names and one per term of tags.
func groupFilters(terms []ec2v1.SecurityGroupSelectorTerm) [][]ec2types.Filter {
	var ids, names []string
	var queries [][]ec2types.Filter
	for _, t := range terms {
		switch {
		case t.ID != "":
			ids = append(ids, t.ID)
		case t.Name != "":
			names = append(names, t.Name)
		default:
			queries = append(queries, TagFilters(t.Tags))
		}
	}
	if len(names) > 0 {
		queries = append([][]ec2types.Filter{{Filter("group-name", names...)}}, queries...)
	}
	if len(ids) > 0 {
		queries = append([][]ec2types.Filter{{Filter("group-id", ids...)}}, queries...)
	}
	return queries
}
