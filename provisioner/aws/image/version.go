package image

import (
	"strings"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
)

// BottlerocketVersion returns the version of the class's Bottlerocket images, for example v1.40.0:
// from the alias, else from a name term, else from the names of the images in use. "" when unknown.
func BottlerocketVersion(nc *ec2v1.EC2NodeClass) string {
	if alias, ok := class.AliasOf(nc); ok {
		return alias.Version
	}
	for _, term := range nc.Spec.AMISelectorTerms {
		if v := versionIn(term.Name); v != "" {
			return v
		}
	}
	for _, term := range nc.Spec.AMISelectorTerms {
		for _, ami := range nc.Status.AMIs {
			if term.ID != "" && ami.ID == term.ID {
				if v := versionIn(ami.Name); v != "" {
					return v
				}
			}
		}
	}
	for _, ami := range nc.Status.AMIs {
		if v := versionIn(ami.Name); v != "" {
			return v
		}
	}
	return ""
}

func versionIn(name string) string {
	for part := range strings.SplitSeq(name, "-") {
		if strings.HasPrefix(part, "v") && strings.Contains(part, ".") {
			return part
		}
	}
	return ""
}
