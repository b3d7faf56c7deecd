package class

import (
	"cmp"
	"maps"
	"regexp"
	"slices"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
)

// Tags are those of everything that is made for a class: its own, and the ones that say whose it is.
// Generated tags win.
func Tags(nc *ec2v1.EC2NodeClass, cluster string) map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, nc.Spec.Tags)
	tags[ec2v1.TagClusterPrefix+cluster] = ec2v1.TagOwned
	tags[ec2v1.TagEKSClusterName] = cluster
	tags[ec2v1.LabelNodeClass] = nc.Name
	return tags
}

// LaunchTags are those of instances and launch templates: Tags and the pool, which may be empty.
func LaunchTags(nc *ec2v1.EC2NodeClass, cluster, pool string) map[string]string {
	tags := Tags(nc, cluster)
	tags[ec2v1.TagNodePool] = pool
	return tags
}

var (
	restrictedTags   = []string{ec2v1.TagNodePool, ec2v1.TagEKSClusterName, ec2v1.TagNodeClaim, ec2v1.LabelNodeClass}
	restrictedScheme = regexp.MustCompile(`^kubernetes\.io/cluster/[0-9A-Za-z][A-Za-z0-9\-_]*$`)
)

// RestrictedTag returns the first tag of the class that only the provisioner may set, "" for none.
func RestrictedTag(nc *ec2v1.EC2NodeClass) string {
	for _, key := range slices.SortedFunc(maps.Keys(nc.Spec.Tags), cmp.Compare[string]) {
		if slices.Contains(restrictedTags, key) || restrictedScheme.MatchString(key) {
			return key
		}
	}
	return ""
}
