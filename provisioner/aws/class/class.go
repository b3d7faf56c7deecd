package class

import (
	"cmp"
	"slices"
	"strings"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
)

// families maps the family of an alias, always lower case, to the AMI family.
var families = map[string]string{
	"al2":          ec2v1.AMIFamilyAL2,
	"al2023":       ec2v1.AMIFamilyAL2023,
	"bottlerocket": ec2v1.AMIFamilyBottlerocket,
	"windows2019":  ec2v1.AMIFamilyWindows2019,
	"windows2022":  ec2v1.AMIFamilyWindows2022,
	"windows2025":  ec2v1.AMIFamilyWindows2025,
}

// LatestVersion is the alias version that follows what AWS recommends.
const LatestVersion = "latest"

// Alias is a parsed AMI alias such as al2023@latest.
type Alias struct {
	Family  string // an AMI family, for example AL2023
	Version string // latest, or the version as the user wrote it
}

// AliasOf returns the class's alias; ok is false when it selects images in another way.
func AliasOf(nc *ec2v1.EC2NodeClass) (alias Alias, ok bool) {
	for _, term := range nc.Spec.AMISelectorTerms {
		if term.Alias == "" {
			continue
		}
		family, version, _ := strings.Cut(term.Alias, "@")
		known, ok := families[family]
		return Alias{Family: known, Version: version}, ok
	}
	return Alias{}, false
}

// Family returns the family that user data and defaults follow: the one that the class names, else the
// one of its alias, else Custom.
func Family(nc *ec2v1.EC2NodeClass) string {
	if f := nc.Spec.AMIFamily; f != nil && *f != "" {
		return *f
	}
	if alias, ok := AliasOf(nc); ok {
		return alias.Family
	}
	return ec2v1.AMIFamilyCustom
}

// IsWindows reports whether the family is one of the Windows families.
func IsWindows(family string) bool { return WindowsBuild(family) != "" }

// WindowsBuild returns the build number that nodes of the family report, "" for other families.
func WindowsBuild(family string) string {
	switch family {
	case ec2v1.AMIFamilyWindows2019:
		return "10.0.17763"
	case ec2v1.AMIFamilyWindows2022:
		return "10.0.20348"
	case ec2v1.AMIFamilyWindows2025:
		return "10.0.26100"
	}
	return ""
}

// Zone is an availability zone in which the class has a subnet.
type Zone struct{ Name, ID string }

// Zones returns the zones of the class's resolved subnets, sorted by name.
func Zones(nc *ec2v1.EC2NodeClass) []Zone {
	zones := make([]Zone, 0, len(nc.Status.Subnets))
	for _, s := range nc.Status.Subnets {
		zones = append(zones, Zone{Name: s.Zone, ID: s.ZoneID})
	}
	slices.SortFunc(zones, func(a, b Zone) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return slices.CompactFunc(zones, func(a, b Zone) bool { return a.Name == b.Name })
}
