package ec2sim

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

type iamState struct {
	roles    map[string]bool
	profiles map[string]*profile
}

type profile struct {
	id, name, path, role string
	created              time.Time
	tags                 map[string]string
}

// Profile is a copy of an instance profile.
type Profile struct {
	Name, Path, Role string // Role is empty while none is attached
	Tags             map[string]string
}

func newIAMState(w *World, now time.Time) iamState {
	st := iamState{roles: toSet(w.Roles), profiles: map[string]*profile{}}
	for name, role := range w.InstanceProfiles {
		st.profiles[name] = &profile{id: "AIPA" + strings.ToUpper(hexID("profile|"+name)), name: name, path: "/", role: role, created: now}
	}
	return st
}

func (st *iamState) has(name string) bool { _, ok := st.profiles[name]; return ok }

// Profiles returns copies of all instance profiles, by name.
func (s *Server) Profiles() []Profile {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Profile, 0, len(s.iam.profiles))
	for _, name := range sortedKeys(s.iam.profiles) {
		p := s.iam.profiles[name]
		list = append(list, Profile{p.name, p.path, p.role, maps.Clone(p.tags)})
	}
	return list
}

// AddRole adds an IAM role.
func (s *Server) AddRole(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.iam.roles[name] = true
}

var (
	profileNamePattern = regexp.MustCompile(`^[\w+=,.@-]{1,128}$`)
	profilePathPattern = regexp.MustCompile(`^(/|/[\x21-\x7e]{1,510}/)$`)
)

func (s *Server) profile(f *form) (*profile, *apiError) {
	name := f.str("InstanceProfileName")
	if name == "" {
		return nil, badRequest("ValidationError", "The parameter InstanceProfileName is missing")
	}
	p, ok := s.iam.profiles[name]
	if !ok {
		return nil, refuse(http.StatusNotFound, "NoSuchEntity", "Instance Profile %s cannot be found.", clip(name))
	}
	return p, nil
}

func (s *Server) profileXML(w *xmlWriter, p *profile) {
	w.text("InstanceProfileName", p.name)
	w.text("InstanceProfileId", p.id)
	w.text("Path", p.path)
	w.text("Arn", s.arn("iam", "instance-profile"+p.path+p.name))
	w.time("CreateDate", p.created)
	w.in("Roles", func() {
		if p.role == "" {
			return
		}
		w.in("member", func() {
			w.text("RoleName", p.role)
			w.text("Path", "/")
			w.text("RoleId", "AROA"+strings.ToUpper(hexID("role|"+p.role)))
			w.text("Arn", s.arn("iam", "role/"+p.role))
			w.time("CreateDate", s.started)
		})
	})
	if len(p.tags) > 0 {
		w.in("Tags", func() {
			for _, key := range sortedKeys(p.tags) {
				w.in("member", func() {
					w.text("Key", key)
					w.text("Value", p.tags[key])
				})
			}
		})
	}
}

func (s *Server) getInstanceProfile(r *request) ([]byte, *apiError) {
	p, bad := s.profile(r.form)
	if bad != nil {
		return nil, bad
	}
	w := xmlWriter{}
	w.in("InstanceProfile", func() { s.profileXML(&w, p) })
	return w.buf, nil
}

func (s *Server) createInstanceProfile(r *request) ([]byte, *apiError) {
	f := r.form
	name, path := f.str("InstanceProfileName"), f.str("Path")
	if path == "" {
		path = "/"
	}
	tags, bad := f.tags("Tags.member")
	switch {
	case !profileNamePattern.MatchString(name):
		return nil, badRequest("ValidationError", "The specified value for instanceProfileName is invalid. It must contain only alphanumeric characters and/or the following: +=,.@_-")
	case !profilePathPattern.MatchString(path):
		return nil, badRequest("ValidationError", "The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.")
	case bad != nil:
		return nil, badRequest("ValidationError", "%s", bad.message)
	case s.iam.has(name):
		return nil, refuse(http.StatusConflict, "EntityAlreadyExists", "Instance Profile %s already exists.", name)
	}
	p := &profile{id: "AIPA" + strings.ToUpper(s.newID("profile")), name: name, path: path, created: s.opts.Clock.Now(), tags: tags}
	s.iam.profiles[name] = p
	w := xmlWriter{}
	w.in("InstanceProfile", func() { s.profileXML(&w, p) })
	return w.buf, nil
}

func (s *Server) addRoleToInstanceProfile(r *request) ([]byte, *apiError) {
	p, bad := s.profile(r.form)
	if bad != nil {
		return nil, bad
	}
	role := r.form.str("RoleName")
	switch {
	case role == "":
		return nil, badRequest("ValidationError", "The parameter RoleName is missing")
	case !s.iam.roles[role]:
		return nil, refuse(http.StatusNotFound, "NoSuchEntity", "The role with name %s cannot be found.", clip(role))
	case p.role != "":
		return nil, refuse(http.StatusConflict, "LimitExceeded", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
	}
	p.role = role
	return nil, nil
}

func (s *Server) removeRoleFromInstanceProfile(r *request) ([]byte, *apiError) {
	p, bad := s.profile(r.form)
	if bad != nil {
		return nil, bad
	}
	role := r.form.str("RoleName")
	if p.role == "" || p.role != role {
		return nil, refuse(http.StatusNotFound, "NoSuchEntity", "The role with name %s cannot be found in instance profile %s.", clip(role), p.name)
	}
	p.role = ""
	return nil, nil
}

func (s *Server) deleteInstanceProfile(r *request) ([]byte, *apiError) {
	p, bad := s.profile(r.form)
	if bad != nil {
		return nil, bad
	}
	if p.role != "" {
		return nil, refuse(http.StatusConflict, "DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
	}
	delete(s.iam.profiles, p.name)
	return nil, nil
}

// listInstanceProfiles pages by name: the marker is the last name of the page before.
func (s *Server) listInstanceProfiles(r *request) ([]byte, *apiError) {
	f := r.form
	size, bad := f.integer("MaxItems", 100)
	if bad != nil || size < 1 || size > 1000 {
		return nil, badRequest("ValidationError", "MaxItems must be between 1 and 1000")
	}
	prefix, marker := f.str("PathPrefix"), f.str("Marker")
	names := slices.DeleteFunc(sortedKeys(s.iam.profiles), func(name string) bool {
		return !strings.HasPrefix(s.iam.profiles[name].path, prefix) || name <= marker
	})
	more := len(names) > size
	names = names[:min(size, len(names))]
	w := xmlWriter{}
	w.in("InstanceProfiles", func() {
		for _, name := range names {
			// The list leaves tags out, as IAM documents.
			p := *s.iam.profiles[name]
			p.tags = nil
			w.in("member", func() { s.profileXML(&w, &p) })
		}
	})
	w.bool("IsTruncated", more)
	if more {
		w.text("Marker", names[len(names)-1])
	}
	return w.buf, nil
}
