package ec2sim

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// eksImageAccount owns the images that EKS publishes.
const eksImageAccount = "602401143452"

// Newest first. Images of other well-formed versions exist as soon as somebody
// names them, so that pinned versions in manifests work.
var (
	eksVersions        = []string{"v20261101", "v20260815", "v20250701"}
	bottlerocketLatest = []string{"1.46.0", "1.40.0", "1.20.4"}
	windowsPatch       = "2026.11.11"
)

// Kubernetes minors that images exist for.
const (
	oldestMinor, newestMinor = 23, 42
	lastAL2Minor             = 32
	firstWindows2025Minor    = 35
)

type imageStore struct {
	account    string
	started    time.Time
	byID       map[string]*Image
	order      []*Image
	parameters map[string]string
}

func newImageStore(account string, started time.Time) *imageStore {
	st := &imageStore{account: account, started: started, byID: map[string]*Image{}, parameters: map[string]string{}}
	for minor := oldestMinor; minor <= newestMinor; minor++ {
		for _, rule := range imageRules {
			for _, version := range rule.versions {
				st.resolve(rule, fmt.Sprintf("1.%d", minor), version)
			}
		}
	}
	return st
}

func (st *imageStore) put(img Image) {
	img.OwnerID = cmp.Or(img.OwnerID, st.account)
	img.State = cmp.Or(img.State, "available")
	img.Arch = cmp.Or(img.Arch, "x86_64")
	if img.Created.IsZero() {
		img.Created = st.started
	}
	if old, known := st.byID[img.ID]; known {
		*old = img
		return
	}
	st.byID[img.ID] = &img
	st.order = append(st.order, &img)
}

// PutImage adds an image or replaces the one with its id.
func (s *Server) PutImage(img Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images.put(img)
}

// Image returns the image with an id.
func (s *Server) Image(id string) (Image, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	img, ok := s.images.byID[id]
	if !ok {
		return Image{}, false
	}
	return *img, true
}

// SetParameter sets an SSM parameter; it goes before a public one of that name.
func (s *Server) SetParameter(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images.parameters[name] = value
}

// imageRule is one line of images that a family publishes: how the parameters
// are called and how the images are. {k} stands for the Kubernetes minor version
// and {v} for the version of the image.
type imageRule struct {
	latest, pinned string // parameter names; pinned empty when versions cannot be asked for
	image          string
	arch           string
	versions       []string // known from the start, newest first
	version        string   // pattern of a well-formed version
	firstMinor     int
	lastMinor      int
	windows        bool

	latestName, pinnedName *regexp.Regexp
}

const (
	minorPattern  = `1\.[1-9][0-9]`
	datePattern   = `v[0-9]{8}`
	dottedPattern = `[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}`
)

var imageRules = makeImageRules()

func makeImageRules() []imageRule {
	var rules []imageRule
	add := func(rule imageRule) {
		rule.latestName = namePattern(rule.latest, rule.version)
		if rule.pinned != "" {
			rule.pinnedName = namePattern(rule.pinned, rule.version)
		}
		rules = append(rules, rule)
	}
	eks := func(path, image, arch string, lastMinor int) {
		base := "/aws/service/eks/optimized-ami/{k}/" + path + "/"
		add(imageRule{latest: base + "recommended/image_id", pinned: base + image + "/image_id", image: image, arch: arch,
			versions: eksVersions, version: datePattern, firstMinor: oldestMinor, lastMinor: lastMinor})
	}
	eks("amazon-linux-2", "amazon-eks-node-{k}-{v}", "x86_64", lastAL2Minor)
	eks("amazon-linux-2-arm64", "amazon-eks-arm64-node-{k}-{v}", "arm64", lastAL2Minor)
	eks("amazon-linux-2-gpu", "amazon-eks-gpu-node-{k}-{v}", "x86_64", lastAL2Minor)
	for _, v := range []struct{ arch, variant string }{
		{"x86_64", "standard"}, {"arm64", "standard"}, {"x86_64", "nvidia"}, {"arm64", "nvidia"}, {"x86_64", "neuron"},
	} {
		eks("amazon-linux-2023/"+v.arch+"/"+v.variant, "amazon-eks-node-al2023-"+v.arch+"-"+v.variant+"-{k}-{v}", v.arch, newestMinor)
	}
	for _, flavour := range []string{"", "-nvidia"} {
		for _, arch := range []string{"x86_64", "arm64"} {
			base := "/aws/service/bottlerocket/aws-k8s-{k}" + flavour + "/" + arch + "/"
			add(imageRule{latest: base + "latest/image_id", pinned: base + "{v}/image_id",
				image: "bottlerocket-aws-k8s-{k}" + flavour + "-" + arch + "-v{v}-0badc0de", arch: arch,
				versions: bottlerocketLatest, version: dottedPattern, firstMinor: oldestMinor, lastMinor: newestMinor})
		}
	}
	windows := func(year string, firstMinor int) {
		name := "Windows_Server-" + year + "-English-Core-EKS_Optimized-{k}"
		add(imageRule{latest: "/aws/service/ami-windows-latest/" + name + "/image_id", image: name + "-{v}", arch: "x86_64",
			versions: []string{windowsPatch}, firstMinor: firstMinor, lastMinor: newestMinor, windows: true})
	}
	windows("2019", oldestMinor)
	windows("2022", oldestMinor)
	windows("2025", firstWindows2025Minor)
	return rules
}

// namePattern makes an expression of a parameter name: group k is the minor
// version, group again its repetition, group v the image version.
func namePattern(name, version string) *regexp.Regexp {
	p := regexp.QuoteMeta(name)
	p = strings.Replace(p, `\{k\}`, "(?P<k>"+minorPattern+")", 1)
	p = strings.Replace(p, `\{k\}`, "(?P<again>"+minorPattern+")", 1)
	p = strings.Replace(p, `\{v\}`, "(?P<v>"+version+")", 1)
	return regexp.MustCompile("^" + p + "$")
}

// matchName tells which minor and which version a parameter name means.
func matchName(pattern *regexp.Regexp, name string) (minor, version string, ok bool) {
	groups := pattern.FindStringSubmatch(name)
	if groups == nil {
		return "", "", false
	}
	minor = groups[pattern.SubexpIndex("k")]
	if i := pattern.SubexpIndex("again"); i >= 0 && groups[i] != minor {
		return "", "", false
	}
	if i := pattern.SubexpIndex("v"); i >= 0 {
		version = groups[i]
	}
	return minor, version, true
}

func (rule imageRule) serves(minor string) bool {
	n, err := strconv.Atoi(strings.TrimPrefix(minor, "1."))
	return err == nil && n >= rule.firstMinor && n <= rule.lastMinor
}

// resolve returns the id of the image that a rule publishes for a Kubernetes
// minor and a version, "" if there is none.
func (st *imageStore) resolve(rule imageRule, minor, version string) string {
	if !rule.serves(minor) {
		return ""
	}
	name := strings.NewReplacer("{k}", minor, "{v}", version).Replace(rule.image)
	id := "ami-" + hexID("image|"+name)
	if _, known := st.byID[id]; !known {
		created := releaseDate(version)
		st.put(Image{ID: id, Name: name, Arch: rule.arch, OwnerID: eksImageAccount, OwnerAlias: "amazon",
			Windows: rule.windows, Created: created, Deprecated: created.AddDate(2, 0, 0)})
	}
	return id
}

// releaseDate makes a date out of a version; greater versions are younger.
func releaseDate(version string) time.Time {
	if t, err := time.Parse("v20060102", version); err == nil {
		return t
	}
	if t, err := time.Parse("2006.01.02", version); err == nil {
		return t
	}
	date := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	var major, minor, patch int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err == nil {
		date = date.AddDate(0, minor-46, patch).AddDate(major-1, 0, 0)
	}
	return date
}

// parameter answers SSM: own parameters first, then the public image ids.
func (st *imageStore) parameter(name string) (string, bool) {
	if value, ok := st.parameters[name]; ok {
		return value, true
	}
	for _, rule := range imageRules {
		if minor, _, ok := matchName(rule.latestName, name); ok {
			id := st.resolve(rule, minor, rule.versions[0])
			return id, id != ""
		}
		if rule.pinnedName == nil {
			continue
		}
		if minor, version, ok := matchName(rule.pinnedName, name); ok {
			id := st.resolve(rule, minor, version)
			return id, id != ""
		}
	}
	return "", false
}

var imageFilters = filterTable[*Image]{
	"image-id":     func(i *Image) []string { return []string{i.ID} },
	"name":         func(i *Image) []string { return []string{i.Name} },
	"state":        func(i *Image) []string { return []string{i.State} },
	"architecture": func(i *Image) []string { return []string{i.Arch} },
	"owner-id":     func(i *Image) []string { return []string{i.OwnerID} },
	"owner-alias":  func(i *Image) []string { return []string{i.OwnerAlias} },
	"virtualization-type": func(*Image) []string {
		return []string{"hvm"}
	},
}

func (s *Server) describeImages(r *request) ([]byte, *apiError) {
	pass, bad := imageFilters.compile(r.form, func(i *Image) map[string]string { return i.Tags })
	if bad != nil {
		return nil, bad
	}
	deprecatedToo, bad := r.form.boolean("IncludeDeprecated")
	if bad != nil {
		return nil, bad
	}
	list := s.images.order
	if ids := r.form.strs("ImageId"); len(ids) > 0 {
		for _, id := range ids {
			if bad := checkImageID(id); bad != nil {
				return nil, bad
			}
		}
		if list, bad = choose(list, ids, func(i *Image) string { return i.ID },
			"InvalidAMIID.NotFound", "The image id '[%s]' does not exist"); bad != nil {
			return nil, bad
		}
	}
	owners, now := r.form.strs("Owner"), s.opts.Clock.Now()
	list = keep(list, func(i *Image) bool {
		// The owner sees a deprecated image even without asking.
		hidden := !deprecatedToo && !i.Deprecated.IsZero() && !i.Deprecated.After(now) && i.OwnerID != s.opts.AccountID
		return !hidden && s.ownedBy(i, owners) && pass(i)
	})
	from, to, next, bad := paging{1, 1000, 0}.window(r.form, len(list))
	if bad != nil {
		return nil, bad
	}
	w := xmlWriter{}
	w.in("imagesSet", func() {
		for _, i := range list[from:to] {
			w.in("item", func() { imageXML(&w, i) })
		}
	})
	w.text("nextToken", next)
	return w.buf, nil
}

func imageXML(w *xmlWriter, i *Image) {
	w.text("imageId", i.ID)
	w.text("name", i.Name)
	w.text("imageLocation", i.OwnerID+"/"+i.Name)
	w.text("imageState", i.State)
	w.text("imageOwnerId", i.OwnerID)
	w.opt("imageOwnerAlias", i.OwnerAlias)
	w.bool("isPublic", i.OwnerAlias == "amazon")
	w.text("architecture", i.Arch)
	w.text("imageType", "machine")
	if i.Windows {
		w.text("platform", "windows")
	}
	w.text("virtualizationType", "hvm")
	w.text("hypervisor", "xen")
	w.text("rootDeviceType", "ebs")
	w.text("rootDeviceName", i.rootDevice())
	w.time("creationDate", i.Created)
	if !i.Deprecated.IsZero() {
		w.time("deprecationTime", i.Deprecated)
	}
	w.tags(i.Tags)
}

func (i *Image) rootDevice() string {
	if i.Windows {
		return "/dev/sda1"
	}
	return "/dev/xvda"
}

func (s *Server) ownedBy(i *Image, owners []string) bool {
	if len(owners) == 0 {
		return true
	}
	return slices.ContainsFunc(owners, func(o string) bool {
		return o == i.OwnerID || o == i.OwnerAlias && o != "" || o == "self" && i.OwnerID == s.opts.AccountID
	})
}

var imageIDPattern = regexp.MustCompile(`^ami-[0-9a-f]{8}([0-9a-f]{9})?$`)

func checkImageID(id string) *apiError {
	if !imageIDPattern.MatchString(id) {
		return badRequest("InvalidAMIID.Malformed", "Invalid id: \"%s\" (expecting \"ami-...\")", clip(id))
	}
	return nil
}
