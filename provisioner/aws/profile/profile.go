package profile

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/smithy-go"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/apierror"
)

const (
	keepKnown    = 15 * time.Minute // what GetInstanceProfile said
	keepCreated  = time.Minute      // a name whose status write may have been lost
	keepNoRole   = time.Minute      // that a role does not exist
	keepGuarded  = time.Hour        // a profile that launches may still name
	regionTag    = "topology.kubernetes.io/region"
	pathTemplate = "/karpenter/%s/%s/"
)

// IAM is what the manager asks of IAM.
type IAM interface {
	GetInstanceProfile(context.Context, *iam.GetInstanceProfileInput, ...func(*iam.Options)) (*iam.GetInstanceProfileOutput, error)
	CreateInstanceProfile(context.Context, *iam.CreateInstanceProfileInput, ...func(*iam.Options)) (*iam.CreateInstanceProfileOutput, error)
	DeleteInstanceProfile(context.Context, *iam.DeleteInstanceProfileInput, ...func(*iam.Options)) (*iam.DeleteInstanceProfileOutput, error)
	AddRoleToInstanceProfile(context.Context, *iam.AddRoleToInstanceProfileInput, ...func(*iam.Options)) (*iam.AddRoleToInstanceProfileOutput, error)
	RemoveRoleFromInstanceProfile(context.Context, *iam.RemoveRoleFromInstanceProfileInput, ...func(*iam.Options)) (*iam.RemoveRoleFromInstanceProfileOutput, error)
	iam.ListInstanceProfilesAPIClient
}

// Manager keeps one instance profile for each class with a role. Safe for concurrent use.
type Manager struct {
	iam             IAM
	clock           clock.PassiveClock
	region, cluster string

	mu      sync.Mutex
	known   map[string]timed // profile name to role name
	created map[string]timed // class UID and role to profile name
	noRole  map[string]timed // role to the error
	guarded map[string]time.Time
}

type timed struct {
	value string
	until time.Time
}

// NewManager makes a Manager for a cluster.
func NewManager(api IAM, clock clock.PassiveClock, region, cluster string) *Manager {
	return &Manager{iam: api, clock: clock, region: region, cluster: cluster,
		known: map[string]timed{}, created: map[string]timed{}, noRole: map[string]timed{}, guarded: map[string]time.Time{}}
}

func (m *Manager) clusterPath() string { return fmt.Sprintf(pathTemplate, m.region, m.cluster) }

func (m *Manager) classPath(nc *ec2v1.EC2NodeClass) string {
	return m.clusterPath() + string(nc.UID) + "/"
}

// roleName is the last segment: a role may be given with its path, and IAM answers without it.
func roleName(role string) string { return role[strings.LastIndexByte(role, '/')+1:] }

func (m *Manager) newName(nc *ec2v1.EC2NodeClass) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(m.region + "\x00" + nc.Name + "\x00" + string(uuid.NewUUID()))) // a hash never fails to write
	return m.cluster + "_" + strconv.FormatUint(h.Sum64(), 10)
}

// Ensure returns the name of a profile with the class's role, made when there is none.
func (m *Manager) Ensure(ctx context.Context, nc *ec2v1.EC2NodeClass, tags map[string]string) (string, error) {
	role := roleName(nc.Spec.Role)
	current := m.current(nc, role)
	if current != "" {
		has, err := m.role(ctx, current)
		switch {
		case err == nil && has == role:
			return current, nil
		case err != nil && !apierror.IsNotFound(err):
			return "", fmt.Errorf("get instance profile %s: %w", current, err)
		}
	}
	if text, ok := m.recall(m.noRole, role); ok {
		return "", errors.New(text)
	}
	name := m.newName(nc)
	if err := m.create(ctx, nc, name, role, tags); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	m.known[name] = timed{role, now.Add(keepKnown)}
	m.created[string(nc.UID)+"/"+role] = timed{name, now.Add(keepCreated)}
	m.guarded[name] = now.Add(keepGuarded)
	if current != "" {
		m.guarded[current] = now.Add(keepGuarded)
	}
	klog.FromContext(ctx).V(2).Info("Created instance profile", "nodeClass", klog.KObj(nc), "instanceProfile", name, "role", role)
	return name, nil
}

// current is the profile that the class has: the one made a moment ago wins, as the status may not show it yet.
func (m *Manager) current(nc *ec2v1.EC2NodeClass, role string) string {
	if name, ok := m.recall(m.created, string(nc.UID)+"/"+role); ok {
		return name
	}
	return nc.Status.InstanceProfile
}

func (m *Manager) recall(from map[string]timed, key string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := from[key]
	if ok && !t.until.After(m.clock.Now()) {
		delete(from, key)
		return "", false
	}
	return t.value, ok
}

// role returns the name of the profile's role, "" when it has none.
func (m *Manager) role(ctx context.Context, name string) (string, error) {
	if role, ok := m.recall(m.known, name); ok {
		return role, nil
	}
	out, err := m.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String(name)})
	if err != nil {
		return "", err
	}
	role := ""
	if p := out.InstanceProfile; p != nil && len(p.Roles) > 0 {
		role = aws.ToString(p.Roles[0].RoleName)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[name] = timed{role, m.clock.Now().Add(keepKnown)}
	return role, nil
}

// create makes a profile with a role, or leaves nothing behind.
func (m *Manager) create(ctx context.Context, nc *ec2v1.EC2NodeClass, name, role string, tags map[string]string) error {
	_, err := m.iam.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{
		InstanceProfileName: aws.String(name), Path: aws.String(m.classPath(nc)), Tags: m.tags(tags),
	})
	if err != nil && apierror.Code(err) != "EntityAlreadyExists" {
		return fmt.Errorf("create instance profile %s: %w", name, err)
	}
	_, err = m.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: aws.String(name), RoleName: aws.String(role)})
	if err == nil {
		return nil
	}
	failure := fmt.Errorf("add role %s to instance profile %s: %w", role, name, err)
	if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "NoSuchEntity" && strings.Contains(strings.ToLower(api.ErrorMessage()), "role") {
		m.mu.Lock()
		m.noRole[role] = timed{failure.Error(), m.clock.Now().Add(keepNoRole)}
		m.mu.Unlock()
	}
	if err := m.delete(context.WithoutCancel(ctx), name); err != nil {
		return errors.Join(failure, err)
	}
	return failure
}

func (m *Manager) tags(tags map[string]string) []iamtypes.Tag {
	all := map[string]string{regionTag: m.region}
	maps.Copy(all, tags)
	out := make([]iamtypes.Tag, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, iamtypes.Tag{Key: aws.String(key), Value: aws.String(all[key])})
	}
	return out
}

// delete removes a profile; one that is gone already is fine.
func (m *Manager) delete(ctx context.Context, name string) error {
	out, err := m.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String(name)})
	if apierror.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get instance profile %s: %w", name, err)
	}
	for _, role := range out.InstanceProfile.Roles {
		_, err := m.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: aws.String(name), RoleName: role.RoleName})
		if err != nil && !apierror.IsNotFound(err) {
			return fmt.Errorf("remove role %s from instance profile %s: %w", aws.ToString(role.RoleName), name, err)
		}
	}
	_, err = m.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: aws.String(name)})
	if err != nil && !apierror.IsNotFound(err) {
		return fmt.Errorf("delete instance profile %s: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, name)
	delete(m.guarded, name)
	return nil
}

func (m *Manager) list(ctx context.Context, path string) ([]string, error) {
	var names []string
	pages := iam.NewListInstanceProfilesPaginator(m.iam, &iam.ListInstanceProfilesInput{PathPrefix: aws.String(path)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list instance profiles under %s: %w", path, err)
		}
		for _, p := range page.InstanceProfiles {
			names = append(names, aws.ToString(p.InstanceProfileName))
		}
	}
	return names, nil
}

// DeleteAll removes every profile that was made for the class.
func (m *Manager) DeleteAll(ctx context.Context, nc *ec2v1.EC2NodeClass) error {
	names, err := m.list(ctx, m.classPath(nc))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, m.delete(ctx, name))
	}
	return errors.Join(errs...)
}

// Collect removes the cluster's profiles that neither a class nor a claim names, unless they were in use
// within the last hour.
func (m *Manager) Collect(ctx context.Context, inUse func(name string) bool) error {
	names, err := m.list(ctx, m.clusterPath())
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if inUse(name) || m.isGuarded(name) {
			continue
		}
		errs = append(errs, m.delete(ctx, name))
	}
	return errors.Join(errs...)
}

func (m *Manager) isGuarded(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	maps.DeleteFunc(m.guarded, func(_ string, until time.Time) bool { return !until.After(now) })
	_, ok := m.guarded[name]
	return ok
}
