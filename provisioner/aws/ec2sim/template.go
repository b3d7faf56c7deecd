package ec2sim

import (
	"encoding/base64"
	"regexp"
	"strings"
	"time"
)

const maxUserData = 16384 // bytes, before base64

type launchTemplate struct {
	id, name string
	created  time.Time
	tags     map[string]string
	data     templateData
}

// templateData is what a launch needs of LaunchTemplateData.
type templateData struct {
	imageID       string
	instanceType  string
	userData      string // decoded
	profile       string // name
	groups        []string
	interfaces    []string // their types, "" for a plain one
	rootGiB       map[string]int64
	tags          map[string]map[string]string // by resource type
	tenancy       string
	groupID       string
	partition     int
	marketType    string
	preference    string // of capacity reservations
	reservationID string
}

var (
	templateNamePattern = regexp.MustCompile(`^[a-zA-Z0-9().\-/_]{3,128}$`)
	templateFilters     = filterTable[*launchTemplate]{
		"launch-template-name": func(t *launchTemplate) []string { return []string{t.name} },
		"create-time":          func(t *launchTemplate) []string { return []string{t.created.UTC().Format(time.RFC3339)} },
	}
)

func (s *Server) createLaunchTemplate(r *request) ([]byte, *apiError) {
	f := r.form
	if known, body, bad := s.tokens.look(r); known {
		return body, bad
	}
	name := f.str("LaunchTemplateName")
	if name == "" {
		return nil, missing("LaunchTemplateName")
	}
	if !templateNamePattern.MatchString(name) {
		return nil, badRequest("InvalidLaunchTemplateName.MalformedException",
			"A launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the following characters: - ( ) . / _.")
	}
	if !f.has("LaunchTemplateData") {
		return nil, missing("LaunchTemplateData")
	}
	data, bad := readTemplateData(f.at("LaunchTemplateData"))
	if bad != nil {
		return nil, bad
	}
	tags, bad := tagSpecifications(&f.node)
	if bad != nil {
		return nil, bad
	}
	dry, bad := f.boolean("DryRun")
	if bad != nil || dry {
		return nil, orDryRun(bad)
	}
	if _, exists := s.templates[name]; exists {
		return nil, badRequest("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
	}
	t := &launchTemplate{id: "lt-" + s.newID("lt"), name: name, created: s.opts.Clock.Now(), tags: tags["launch-template"], data: data}
	s.templates[name] = t
	s.templateIDs[t.id] = name
	w := xmlWriter{}
	w.in("launchTemplate", func() { s.templateXML(&w, t) })
	s.tokens.keep(r, w.buf)
	return w.buf, nil
}

func (s *Server) templateXML(w *xmlWriter, t *launchTemplate) {
	w.text("launchTemplateId", t.id)
	w.text("launchTemplateName", t.name)
	w.time("createTime", t.created)
	w.text("createdBy", s.arn("iam", "root"))
	w.int("defaultVersionNumber", 1)
	w.int("latestVersionNumber", 1)
	w.tags(t.tags)
}

func readTemplateData(n *node) (templateData, *apiError) {
	d := templateData{
		imageID: n.str("ImageId"), instanceType: n.str("InstanceType"),
		profile:       n.str("IamInstanceProfile.Name"),
		tenancy:       n.str("Placement.Tenancy"),
		groupID:       n.str("Placement.GroupId"),
		marketType:    n.str("InstanceMarketOptions.MarketType"),
		preference:    n.str("CapacityReservationSpecification.CapacityReservationPreference"),
		reservationID: n.str("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"),
		groups:        n.strs("SecurityGroupId"),
		rootGiB:       map[string]int64{},
	}
	if d.profile == "" {
		if _, name, ok := strings.Cut(n.str("IamInstanceProfile.Arn"), ":instance-profile/"); ok {
			d.profile = name[strings.LastIndex(name, "/")+1:]
		}
	}
	var bad *apiError
	if d.userData, bad = decodeUserData(n.str("UserData")); bad != nil {
		return d, bad
	}
	if d.partition, bad = n.integer("Placement.PartitionNumber", 0); bad != nil {
		return d, bad
	}
	interfaces := n.list("NetworkInterface")
	if len(interfaces) > 0 && len(d.groups) > 0 {
		return d, badRequest("InvalidParameterCombination", "Network interfaces and an instance-level security groups may not be specified on the same request")
	}
	public := false
	for _, nic := range interfaces {
		d.interfaces = append(d.interfaces, nic.str("InterfaceType"))
		d.groups = append(d.groups, nic.strs("SecurityGroupId")...)
		public = public || nic.str("AssociatePublicIpAddress") == "true"
	}
	if public && len(interfaces) > 1 {
		return d, badRequest("InvalidParameterCombination", "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.")
	}
	for _, m := range n.list("BlockDeviceMapping") {
		size, bad := m.integer("Ebs.VolumeSize", 0)
		if bad != nil {
			return d, bad
		}
		if size > 0 {
			d.rootGiB[m.str("DeviceName")] = int64(size)
		}
	}
	if d.tags, bad = tagSpecifications(n); bad != nil {
		return d, bad
	}
	return d, nil
}

func decodeUserData(encoded string) (string, *apiError) {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", badRequest("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	if len(raw) > maxUserData {
		return "", badRequest("InvalidUserData.Malformed", "User data is limited to %d bytes", maxUserData)
	}
	return string(raw), nil
}

// tagSpecifications reads TagSpecification.N into tags by resource type.
func tagSpecifications(n *node) (map[string]map[string]string, *apiError) {
	specs := map[string]map[string]string{}
	for _, spec := range n.list("TagSpecification") {
		kind := spec.str("ResourceType")
		if kind == "" {
			return nil, missing("TagSpecification.ResourceType")
		}
		if _, twice := specs[kind]; twice {
			return nil, badRequest("InvalidParameterValue", "'%s' is specified twice in TagSpecification", clip(kind))
		}
		tags, bad := spec.tags("Tag")
		if bad != nil {
			return nil, bad
		}
		if len(tags) == 0 {
			return nil, badRequest("InvalidParameterValue", "Tag specification must have at least one tag")
		}
		specs[kind] = tags
	}
	return specs, nil
}

// templateVersion finds what a launch template specification names.
func (s *Server) templateVersion(n *node) (*launchTemplate, *apiError) {
	t, bad := s.template(n)
	if bad != nil {
		return nil, bad
	}
	switch v := n.str("Version"); v {
	case "", "1", "$Latest", "$Default":
		return t, nil
	default:
		return nil, badRequest("InvalidLaunchTemplateId.VersionNotFound", "Could not find launch template version %s", clip(v))
	}
}

// template finds a template by LaunchTemplateId or LaunchTemplateName.
func (s *Server) template(n *node) (*launchTemplate, *apiError) {
	id, name := n.str("LaunchTemplateId"), n.str("LaunchTemplateName")
	switch {
	case id != "" && name != "":
		return nil, badRequest("InvalidParameterCombination", "Only one of launchTemplateId and launchTemplateName may be given")
	case id == "" && name == "":
		return nil, missing("LaunchTemplateName")
	case id != "":
		known, ok := s.templateIDs[id]
		if !ok {
			return nil, noTemplateID(id)
		}
		name = known
	}
	t, ok := s.templates[name]
	if !ok {
		return nil, noTemplateName(name)
	}
	return t, nil
}

func noTemplateID(id string) *apiError {
	return badRequest("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", clip(id))
}

func noTemplateName(name string) *apiError {
	return badRequest("InvalidLaunchTemplateName.NotFoundException", "At least one of the launch templates specified in the request does not exist: %s", clip(name))
}

func (s *Server) describeLaunchTemplates(r *request) ([]byte, *apiError) {
	f := r.form
	pass, bad := templateFilters.compile(f, func(t *launchTemplate) map[string]string { return t.tags })
	if bad != nil {
		return nil, bad
	}
	var list []*launchTemplate
	names, ids := f.strs("LaunchTemplateName"), f.strs("LaunchTemplateId")
	switch {
	case len(names) > 0:
		for _, name := range names {
			t, ok := s.templates[name]
			if !ok {
				return nil, noTemplateName(name)
			}
			list = append(list, t)
		}
	case len(ids) > 0:
		for _, id := range ids {
			name, ok := s.templateIDs[id]
			if !ok {
				return nil, noTemplateID(id)
			}
			list = append(list, s.templates[name])
		}
	default:
		for _, name := range sortedKeys(s.templates) {
			list = append(list, s.templates[name])
		}
	}
	list = keep(list, pass)
	from, to, next, bad := paging{1, 200, 200}.window(f, len(list))
	if bad != nil {
		return nil, bad
	}
	w := xmlWriter{}
	w.in("launchTemplates", func() {
		for _, t := range list[from:to] {
			w.in("item", func() { s.templateXML(&w, t) })
		}
	})
	w.text("nextToken", next)
	return w.buf, nil
}

func (s *Server) deleteLaunchTemplate(r *request) ([]byte, *apiError) {
	t, bad := s.template(&r.form.node)
	if bad != nil {
		return nil, bad
	}
	dry, bad := r.form.boolean("DryRun")
	if bad != nil || dry {
		return nil, orDryRun(bad)
	}
	delete(s.templates, t.name)
	delete(s.templateIDs, t.id)
	w := xmlWriter{}
	w.in("launchTemplate", func() { s.templateXML(&w, t) })
	return w.buf, nil
}
