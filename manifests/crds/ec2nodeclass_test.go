package crds_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const minimalNodeClass = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata:
  name: default
spec:
  role: node-role
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]
`

func TestEC2NodeClassDefaults(t *testing.T) {
	t.Parallel()
	endpoint := endpointOf(t, "EC2NodeClass v1")
	want := map[string]any{"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": int64(1), "httpTokens": "required"}
	cases := map[string]string{
		"AP-17 omitted metadataOptions are filled in":     `{}`,
		"AP-17 empty metadataOptions are filled in":       `{spec: {metadataOptions: {}}}`,
		"AP-17 one option given, the rest are filled in ": `{spec: {metadataOptions: {httpTokens: required}}}`,
	}
	for name, patch := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			obj, errs := endpoint.create(t, merge(parse(t, minimalNodeClass), parse(t, patch)))
			require.Empty(t, errs)
			require.Equal(t, want, nested(t, obj, "spec.metadataOptions"))
		})
	}
	t.Run("an open kubelet block stays as written", func(t *testing.T) {
		t.Parallel()
		patch := parse(t, `{spec: {kubelet: {maxPods: "default_enis * 10", fooBar: {deep: [1, a]}, evictionHard: {memory.available: 5%}}}}`)
		obj, errs := endpoint.create(t, merge(parse(t, minimalNodeClass), patch))
		require.Empty(t, errs)
		require.Equal(t, patch["spec"].(map[string]any)["kubelet"], nested(t, obj, "spec.kubelet"))
	})
}

func TestEC2NodeClassIdentity(t *testing.T) {
	t.Parallel()
	const oneOf = "must specify exactly one of ['role', 'instanceProfile']"
	runCreates(t, "EC2NodeClass v1", minimalNodeClass, map[string]write{
		"AP-01 role and instanceProfile are refused": {patch: `{spec: {instanceProfile: p}}`, field: "spec", message: oneOf},
		"AP-02 neither is refused":                   {patch: `{spec: {role: null}}`, field: "spec", message: oneOf},
		"AP-02 instanceProfile alone is accepted":    {patch: `{spec: {role: null, instanceProfile: p}}`},
		"an empty role is refused":                   {patch: `{spec: {role: ""}}`, field: "spec.role", message: "role cannot be empty"},
		"an empty instanceProfile is refused":        {patch: `{spec: {role: null, instanceProfile: ""}}`, field: "spec.instanceProfile", message: "instanceProfile cannot be empty"},

		"AP-15 tag kubernetes.io/cluster/foo is refused": {patch: `{spec: {tags: {kubernetes.io/cluster/foo: owned}}}`, field: "spec.tags", message: "tag contains a restricted tag matching kubernetes.io/cluster/"},
		"tag eks:eks-cluster-name is refused":            {patch: `{spec: {tags: {"eks:eks-cluster-name": a}}}`, field: "spec.tags", message: "tag contains a restricted tag matching eks:eks-cluster-name"},
		"tag karpenter.sh/nodepool is refused":           {patch: `{spec: {tags: {karpenter.sh/nodepool: a}}}`, field: "spec.tags", message: "tag contains a restricted tag matching karpenter.sh/nodepool"},
		"tag karpenter.sh/nodeclaim is refused":          {patch: `{spec: {tags: {karpenter.sh/nodeclaim: a}}}`, field: "spec.tags", message: "tag contains a restricted tag matching karpenter.sh/nodeclaim"},
		"tag karpenter.k8s.aws/ec2nodeclass is refused":  {patch: `{spec: {tags: {karpenter.k8s.aws/ec2nodeclass: a}}}`, field: "spec.tags", message: "tag contains a restricted tag matching karpenter.k8s.aws/ec2nodeclass"},
		"an empty tag key is refused":                    {patch: `{spec: {tags: {"": a}}}`, field: "spec.tags", message: "empty tag keys aren't supported"},
		"AP-16 tag Name and empty values are accepted":   {patch: `{spec: {tags: {Name: x, team: ""}}}`},
	})
	runUpdates(t, "EC2NodeClass v1", minimalNodeClass, map[string]change{
		"role can become instanceProfile": {old: `{}`, patch: `{spec: {role: null, instanceProfile: p}}`},
		"instanceProfile can become role": {old: `{spec: {role: null, instanceProfile: p}}`, patch: `{spec: {role: r, instanceProfile: null}}`},
	})
}

func TestEC2NodeClassImages(t *testing.T) {
	t.Parallel()
	const at = "spec.amiSelectorTerms"
	const idExclusive = "'id' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms"
	const aliasExclusive = "'alias' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms"
	terms := func(flow string) string { return "{spec: {amiFamily: Custom, amiSelectorTerms: [" + flow + "]}}" }
	cases := map[string]write{
		"AP-03 an alias without amiFamily is accepted":     {patch: `{}`},
		"AP-04 an alias with another family is refused":    {patch: `{spec: {amiFamily: Bottlerocket}}`, field: "spec.amiFamily", message: "if set, amiFamily must be 'AL2023' or 'Custom' when using an AL2023 alias"},
		"AP-05 an alias with family Custom is accepted":    {patch: `{spec: {amiFamily: Custom}}`},
		"AP-43 an alias with its own family is accepted":   {patch: `{spec: {amiFamily: AL2023}}`},
		"AP-06 an alias beside another term is refused":    {patch: terms(`{alias: al2023@latest}, {id: ami-0123456789abcdef0}`), field: at, message: "'alias' is mutually exclusive, cannot be set with a combination of other amiSelectorTerms"},
		"AP-07 a pinned windows alias is refused":          {patch: terms(`{alias: windows2022@v1}`), field: at + "[0].alias", message: "windows families may only specify version 'latest'"},
		"AP-07 the latest windows alias is accepted":       {patch: terms(`{alias: windows2022@latest}`)},
		"AP-08 an alias in capitals is refused":            {patch: terms(`{alias: AL2023@latest}`), field: at + "[0].alias", message: "family is not supported, must be one of the following: 'al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025'"},
		"AP-09 owner alone is refused":                     {patch: terms(`{owner: self}`), field: at, message: "expected at least one, got none, ['tags', 'id', 'name', 'alias', 'ssmParameter']"},
		"AP-10 id with name is refused":                    {patch: terms(`{id: ami-0123, name: a}`), field: at, message: idExclusive},
		"AP-10 id with tags in the second term is refused": {patch: terms(`{name: a}, {id: ami-0123, tags: {a: b}}`), field: at, message: idExclusive},
		"AP-13 an empty tag value in an AMI term":          {patch: terms(`{tags: {a: ""}}`), field: at + "[0].tags", message: "empty tag keys or values aren't supported"},
		"alias with name is refused":                       {patch: terms(`{alias: al2023@latest, name: a}`), field: at, message: aliasExclusive},
		"an alias without version is refused":              {patch: terms(`{alias: al2023}`), field: at + "[0].alias", message: "'alias' is improperly formatted, must match the format 'family@version'"},
		"an alias of 31 characters is refused":             {patch: terms(`{alias: al2023@` + strings.Repeat("v", 24) + `}`), field: at + "[0].alias", message: "may not be more than 30"},
		"a pinned bottlerocket alias is accepted":          {patch: terms(`{alias: bottlerocket@v1.20.5}`)},
		"an id that is none is refused":                    {patch: terms(`{id: i-0123}`), field: at + "[0].id", message: "should match"},
		"ssmParameter alone and with id are accepted":      {patch: terms(`{ssmParameter: /golden/image}, {id: ami-0123, ssmParameter: /x}`)},
		"name, owner and tags together are accepted":       {patch: terms(`{name: golden-*, owner: "123456789012", tags: {a: "*"}}`)},
		"terms are required":                               {patch: `{spec: {amiSelectorTerms: null}}`, field: at, message: "Required value"},
		"no terms are refused":                             {patch: terms(``), field: at, message: "should have at least 1 items"},
		"31 terms are refused":                             {patch: terms(strings.Trim(list(31, `{name: n%d}`), "[]")), field: at, message: "must have at most 30 items"},
		"no alias and no amiFamily is refused":             {patch: `{spec: {amiSelectorTerms: [{id: ami-0123}]}}`, field: "spec.amiFamily", message: "must specify amiFamily if amiSelectorTerms does not contain an alias"},
		"an unknown amiFamily is refused":                  {patch: `{spec: {amiFamily: Ubuntu}}`, field: "spec.amiFamily", message: "supported values"},
	}
	for alias, family := range map[string]string{
		"al2": "AL2", "al2023": "AL2023", "bottlerocket": "Bottlerocket", "windows2019": "Windows2019", "windows2022": "Windows2022", "windows2025": "Windows2025",
	} {
		other, article := "AL2023", "a"
		if family == "AL2023" {
			other = "AL2"
		}
		if strings.HasPrefix(family, "AL") {
			article = "an"
		}
		spec := func(f string) string {
			return "{spec: {amiFamily: " + f + ", amiSelectorTerms: [{alias: " + alias + "@latest}]}}"
		}
		cases["AP-04 "+alias+" with family "+other+" is refused"] = write{patch: spec(other), field: "spec.amiFamily",
			message: "if set, amiFamily must be '" + family + "' or 'Custom' when using " + article + " " + family + " alias"}
		cases["AP-03 "+alias+" with its own family is accepted"] = write{patch: spec(family)}
	}
	runCreates(t, "EC2NodeClass v1", minimalNodeClass, cases)
}

func TestEC2NodeClassNetwork(t *testing.T) {
	t.Parallel()
	subnets := func(flow string) string { return "{spec: {subnetSelectorTerms: [" + flow + "]}}" }
	groups := func(flow string) string { return "{spec: {securityGroupSelectorTerms: [" + flow + "]}}" }
	reservations := func(flow string) string { return "{spec: {capacityReservationSelectorTerms: [" + flow + "]}}" }
	interfaces := func(flow string) string { return "{spec: {networkInterfaces: [" + flow + "]}}" }
	tracking := func(flow string) string { return "{spec: {connectionTracking: {" + flow + "}}}" }
	const primary = `{networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}`
	const duplicates = "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one efa device per network card"
	const emptyTags = "empty tag keys or values aren't supported"
	const s, g, r, n = "spec.subnetSelectorTerms", "spec.securityGroupSelectorTerms", "spec.capacityReservationSelectorTerms", "spec.networkInterfaces"
	runCreates(t, "EC2NodeClass v1", minimalNodeClass, map[string]write{
		"AP-11 subnet id with tags is refused":                    {patch: subnets(`{id: subnet-1, tags: {a: b}}`), field: s, message: "'id' is mutually exclusive, cannot be set with a combination of other fields in subnetSelectorTerms"},
		"AP-12 subnet id with tags beside a good term":            {patch: subnets(`{id: subnet-1, tags: {a: b}}, {tags: {a: b}}`)},
		"AP-13 an empty tag value in a subnet term is refused":    {patch: subnets(`{tags: {a: ""}}`), field: s + "[0].tags", message: emptyTags},
		"AP-13 an empty tag key in a subnet term is refused":      {patch: subnets(`{tags: {"": a}}`), field: s + "[0].tags", message: emptyTags},
		"AP-14 31 subnet terms are refused":                       {patch: subnets(strings.Trim(list(31, `{id: subnet-%d}`), "[]")), field: s, message: "must have at most 30 items"},
		"AP-14 30 subnet terms are accepted":                      {patch: subnets(strings.Trim(list(30, `{id: subnet-%d}`), "[]"))},
		"subnet terms are required":                               {patch: `{spec: {subnetSelectorTerms: null}}`, field: s, message: "Required value"},
		"security group terms are required":                       {patch: `{spec: {securityGroupSelectorTerms: null}}`, field: g, message: "Required value"},
		"a security group id that is none is refused":             {patch: groups(`{id: vpc-1}`), field: g + "[0].id", message: "should match"},
		"AP-13 an empty tag value in a security group term":       {patch: groups(`{tags: {a: ""}}`), field: g + "[0].tags", message: emptyTags},
		"AP-13 an empty tag value in a capacity reservation term": {patch: reservations(`{tags: {a: ""}}`), field: r + "[0].tags", message: emptyTags},
		"a card is required":                                      {patch: interfaces(`{deviceIndex: 0, interfaceType: interface}`), field: n + "[0].networkCardIndex", message: "Required value"},
		"a device is required":                                    {patch: interfaces(`{networkCardIndex: 0, interfaceType: interface}`), field: n + "[0].deviceIndex", message: "Required value"},
		"a negative device is refused":                            {patch: interfaces(primary + `, {networkCardIndex: 0, deviceIndex: -1, interfaceType: interface}`), field: n + "[1].deviceIndex", message: "greater than or equal to 0"},
		"udpStreamTimeout 59 is refused":                          {patch: tracking(`udpStreamTimeout: 59`), field: "spec.connectionTracking.udpStreamTimeout", message: "greater than or equal to 60"},
		"udpTimeout 61 is refused":                                {patch: tracking(`udpTimeout: 61`), field: "spec.connectionTracking.udpTimeout", message: "less than or equal to 60"},
		"no subnet terms are refused":                             {patch: subnets(``), field: s, message: "subnetSelectorTerms cannot be empty"},
		"an empty subnet term is refused":                         {patch: subnets(`{}`), field: s, message: "expected at least one, got none, ['tags', 'id']"},
		"21 tags in one term are refused":                         {patch: subnets(`{tags: {` + strings.Trim(list(21, `t%d: a`), "[]") + `}}`), field: s + "[0].tags", message: "must have at most 20"},
		"a subnet id that is none is refused":                     {patch: subnets(`{id: vpc-1}`), field: s + "[0].id", message: "should match"},
		"no security group terms are refused":                     {patch: groups(``), field: g, message: "securityGroupSelectorTerms cannot be empty"},
		"an empty security group term is refused":                 {patch: groups(`{}`), field: g, message: "expected at least one, got none, ['tags', 'id', 'name']"},
		"security group id with name is refused":                  {patch: groups(`{id: sg-1, name: a}`), field: g, message: "'id' is mutually exclusive, cannot be set with a combination of other fields in securityGroupSelectorTerms"},
		"security group name with tags is refused":                {patch: groups(`{name: a, tags: {a: b}}`), field: g, message: "'name' is mutually exclusive, cannot be set with a combination of other fields in securityGroupSelectorTerms"},
		"security groups by id, name and tags are accepted":       {patch: groups(`{id: sg-1}, {name: a}, {tags: {a: "*"}}`)},
		"capacity reservation ownerID alone is refused":           {patch: reservations(`{ownerID: "123456789012"}`), field: r, message: "expected at least one, got none, ['tags', 'id', 'instanceMatchCriteria']"},
		"capacity reservation id with ownerID is refused":         {patch: reservations(`{id: cr-1, ownerID: "123456789012"}`), field: r, message: "'id' is mutually exclusive"},
		"capacity reservation ownerID of 11 digits is refused":    {patch: reservations(`{tags: {a: b}, ownerID: "12345678901"}`), field: r + "[0].ownerID", message: "should match"},
		"capacity reservation criteria closed is refused":         {patch: reservations(`{instanceMatchCriteria: closed}`), field: r + "[0].instanceMatchCriteria", message: "supported values"},
		"capacity reservation id must match in full":              {patch: reservations(`{id: a-cr-1}`), field: r + "[0].id", message: "should match"},
		"capacity reservations by id, tags and criteria":          {patch: reservations(`{id: cr-0123}, {tags: {a: b}, ownerID: "123456789012"}, {instanceMatchCriteria: targeted}`)},
		"AP-23 no primary interface is refused":                   {patch: interfaces(`{networkCardIndex: 0, deviceIndex: 0, interfaceType: efa-only}`), field: n, message: "networkInterfaces must include a primary interface with interfaceType='interface'"},
		"AP-23 a primary interface is accepted":                   {patch: interfaces(primary)},
		"AP-24 two efa-only on one card are refused":              {patch: interfaces(primary + `, {networkCardIndex: 1, deviceIndex: 0, interfaceType: efa-only}, {networkCardIndex: 1, deviceIndex: 1, interfaceType: efa-only}`), field: n, message: duplicates},
		"AP-24 one pair twice is refused":                         {patch: interfaces(primary + `, ` + primary), field: n, message: duplicates},
		"AP-24 one efa-only per card is accepted":                 {patch: interfaces(primary + `, {networkCardIndex: 0, deviceIndex: 1, interfaceType: efa-only}, {networkCardIndex: 1, deviceIndex: 1, interfaceType: efa-only}`)},
		"a negative card is refused":                              {patch: interfaces(primary + `, {networkCardIndex: -1, deviceIndex: 1, interfaceType: interface}`), field: n + "[1].networkCardIndex", message: "greater than or equal to 0"},
		"interface type efa is refused":                           {patch: interfaces(primary + `, {networkCardIndex: 0, deviceIndex: 1, interfaceType: efa}`), field: n + "[1].interfaceType", message: "supported values"},
		"an interface without type is refused":                    {patch: interfaces(primary + `, {networkCardIndex: 0, deviceIndex: 1}`), field: n + "[1].interfaceType", message: "Required value"},
		"151 interfaces are refused":                              {patch: interfaces(strings.Trim(list(151, `{networkCardIndex: 0, deviceIndex: %d, interfaceType: interface}`), "[]")), field: n, message: "must have at most 150 items"},
		"150 interfaces are within the cost budget":               {patch: interfaces(strings.Trim(list(150, `{networkCardIndex: 0, deviceIndex: %d, interfaceType: interface}`), "[]"))},
		"AP-25 connectionTracking without members":                {patch: tracking(``), field: "spec.connectionTracking", message: "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set"},
		"AP-25 one timeout is accepted":                           {patch: tracking(`udpTimeout: 60`)},
		"tcpEstablishedTimeout 59 is refused":                     {patch: tracking(`tcpEstablishedTimeout: 59`), field: "spec.connectionTracking.tcpEstablishedTimeout", message: "greater than or equal to 60"},
		"tcpEstablishedTimeout 432001 is refused":                 {patch: tracking(`tcpEstablishedTimeout: 432001`), field: "spec.connectionTracking.tcpEstablishedTimeout", message: "less than or equal to 432000"},
		"udpStreamTimeout 181 is refused":                         {patch: tracking(`udpStreamTimeout: 181`), field: "spec.connectionTracking.udpStreamTimeout", message: "less than or equal to 180"},
		"udpTimeout 29 is refused":                                {patch: tracking(`udpTimeout: 29`), field: "spec.connectionTracking.udpTimeout", message: "greater than or equal to 30"},
		"a placement group by name and id is refused":             {patch: `{spec: {placementGroupSelector: {name: a, id: pg-1}}}`, field: "spec.placementGroupSelector", message: "must specify exactly one of ['name', 'id']"},
		"a placement group by nothing is refused":                 {patch: `{spec: {placementGroupSelector: {}}}`, field: "spec.placementGroupSelector", message: "must specify exactly one of ['name', 'id']"},
		"a placement group with an empty name is refused":         {patch: `{spec: {placementGroupSelector: {name: ""}}}`, field: "spec.placementGroupSelector.name", message: "should be at least 1 chars long"},
		"a placement group id that is none is refused":            {patch: `{spec: {placementGroupSelector: {id: xpg-1}}}`, field: "spec.placementGroupSelector.id", message: "should match"},
		"a placement group by id is accepted":                     {patch: `{spec: {placementGroupSelector: {id: pg-0123}}}`},
		"a negative ipPrefixCount is refused":                     {patch: `{spec: {ipPrefixCount: -1}}`, field: "spec.ipPrefixCount", message: "greater than or equal to 0"},
	})
}

func TestEC2NodeClassMachine(t *testing.T) {
	t.Parallel()
	volume := func(flow string) string {
		return "{spec: {blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {" + flow + "}}]}}"
	}
	const ebs = "spec.blockDeviceMappings[0].ebs"
	cases := map[string]write{
		"AP-19 volumeInitializationRate without snapshotID":     {patch: volume(`volumeSize: 1Gi, volumeInitializationRate: 100`), field: ebs + ".volumeInitializationRate", message: "snapshotID must be set when volumeInitializationRate is set"},
		"AP-19 volumeInitializationRate with an empty snapshot": {patch: volume(`snapshotID: "", volumeInitializationRate: 100`), field: ebs + ".volumeInitializationRate", message: "snapshotID must be set when volumeInitializationRate is set"},
		"AP-19 volumeInitializationRate with a snapshot":        {patch: volume(`snapshotID: snap-1, volumeInitializationRate: 300`)},
		"volumeInitializationRate 99 is refused":                {patch: volume(`snapshotID: snap-1, volumeInitializationRate: 99`), field: ebs + ".volumeInitializationRate", message: "greater than or equal to 100"},
		"httpEndpoint on is refused":                            {patch: `{spec: {metadataOptions: {httpEndpoint: "on"}}}`, field: "spec.metadataOptions.httpEndpoint", message: "supported values"},
		"httpProtocolIPv6 on is refused":                        {patch: `{spec: {metadataOptions: {httpProtocolIPv6: "on"}}}`, field: "spec.metadataOptions.httpProtocolIPv6", message: "supported values"},
		"volumeInitializationRate 301 is refused":               {patch: volume(`snapshotID: snap-1, volumeInitializationRate: 301`), field: ebs + ".volumeInitializationRate", message: "less than or equal to 300"},
		"AP-20 two root volumes are refused":                    {patch: `{spec: {blockDeviceMappings: [{rootVolume: true}, {rootVolume: true}]}}`, field: "spec.blockDeviceMappings", message: "must have only one blockDeviceMappings with rootVolume"},
		"AP-20 one root volume of two is accepted":              {patch: `{spec: {blockDeviceMappings: [{rootVolume: true}, {rootVolume: false}, {}]}}`},
		"AP-22 a mapping without ebs is left to runtime":        {patch: `{spec: {blockDeviceMappings: [{deviceName: /dev/xvda}]}}`},
		"a volume without size and snapshot is refused":         {patch: volume(`encrypted: true`), field: ebs, message: "snapshotID or volumeSize must be defined"},
		"volume type gp4 is refused":                            {patch: volume(`volumeSize: 1Gi, volumeType: gp4`), field: ebs + ".volumeType", message: "supported values"},
		"51 mappings are refused":                               {patch: `{spec: {blockDeviceMappings: ` + list(51, `{deviceName: /dev/d%d}`) + `}}`, field: "spec.blockDeviceMappings", message: "must have at most 50 items"},
		"instanceStorePolicy RAID1 is refused":                  {patch: `{spec: {instanceStorePolicy: RAID1}}`, field: "spec.instanceStorePolicy", message: `supported values: "RAID0"`},
		"httpPutResponseHopLimit 0 is refused":                  {patch: `{spec: {metadataOptions: {httpPutResponseHopLimit: 0}}}`, field: "spec.metadataOptions.httpPutResponseHopLimit", message: "greater than or equal to 1"},
		"httpPutResponseHopLimit 65 is refused":                 {patch: `{spec: {metadataOptions: {httpPutResponseHopLimit: 65}}}`, field: "spec.metadataOptions.httpPutResponseHopLimit", message: "less than or equal to 64"},
		"httpTokens maybe is refused":                           {patch: `{spec: {metadataOptions: {httpTokens: maybe}}}`, field: "spec.metadataOptions.httpTokens", message: "supported values"},
		"nestedVirtualization on is refused":                    {patch: `{spec: {cpuOptions: {nestedVirtualization: "on"}}}`, field: "spec.cpuOptions.nestedVirtualization", message: "supported values"},
		"a kubelet that is no object is refused":                {patch: `{spec: {kubelet: maxPods}}`, field: "spec.kubelet", message: "must be of type object"},
		"an unknown field is refused":                           {patch: `{spec: {instanceTypes: [m5.large]}}`, field: "spec.instanceTypes", message: "unknown field"},
	}
	for _, size := range []string{"18Ti", "19Ti", "28Ti", "59Ti", "60Ti", "0Gi", "59001Gi", "64001G", "65T", "100Mi", "1.5Ti", "01Gi", "1gi", "-1Gi"} {
		cases["AP-18 volumeSize "+size+" is refused"] = write{patch: volume(`volumeSize: ` + size), field: ebs + ".volumeSize", message: "should match"}
	}
	// Differs: the reference lets the bare suffixes through and then cannot read the object.
	for _, size := range []string{"Ti", "T"} {
		cases["AP-18 differs: volumeSize "+size+" is refused"] = write{patch: volume(`volumeSize: ` + size), field: ebs + ".volumeSize", message: "should match"}
	}
	for _, size := range []string{"17Ti", "9Ti", "10Ti", "58Ti", "57Ti", "1Gi", "20Gi", "59000Gi", "58999Gi", "49999Gi", "64000G", "63999G", "59999G", "1G", "64T", "63T", "59T", "1T"} {
		cases["AP-18 volumeSize "+size+" is accepted"] = write{patch: volume(`volumeSize: ` + size)}
	}
	cases["AP-18 volumeSize as a number is refused"] = write{patch: volume(`volumeSize: 20`), field: ebs + ".volumeSize", message: "must be of type string"}
	runCreates(t, "EC2NodeClass v1", minimalNodeClass, cases)
}
