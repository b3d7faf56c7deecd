package fit

import (
	"fmt"

	fwk "k8s.io/kube-scheduler/framework"
)

// lister shows plugins the trial that is running. Plugins keep the lister from when they were made, so
// it looks up the trial at each call.
type lister struct {
	shadow *shadow
	groups fwk.PodGroupManager
}

var (
	_ fwk.SharedLister      = (*lister)(nil)
	_ fwk.NodeInfoLister    = (*lister)(nil)
	_ fwk.StorageInfoLister = (*lister)(nil)
)

func (l *lister) NodeInfos() fwk.NodeInfoLister           { return l }
func (l *lister) StorageInfos() fwk.StorageInfoLister     { return l }
func (l *lister) PodGroupStates() fwk.PodGroupStateLister { return l.groups.PodGroupStates() }
func (l *lister) PodGroups() fwk.PodGroupLister           { return l.groups.PodGroups() }
func (l *lister) CompositePodGroupStates() fwk.CompositePodGroupStateLister {
	return l.groups.CompositePodGroupStates()
}
func (l *lister) CompositePodGroups() fwk.CompositePodGroupLister {
	return l.groups.CompositePodGroups()
}

func (l *lister) List() ([]fwk.NodeInfo, error) {
	if l.shadow.current == nil {
		return nil, nil
	}
	return l.shadow.current.infos, nil
}

func (l *lister) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) {
	return l.having(func(n fwk.NodeInfo) bool { return len(n.GetPodsWithAffinity()) > 0 })
}

func (l *lister) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return l.having(func(n fwk.NodeInfo) bool { return len(n.GetPodsWithRequiredAntiAffinity()) > 0 })
}

func (l *lister) HavePodsWithRequiredNonHostScopedAntiAffinityList() ([]fwk.NodeInfo, error) {
	return l.having(func(n fwk.NodeInfo) bool { return len(n.GetPodsWithRequiredNonHostScopedAntiAffinity()) > 0 })
}

func (l *lister) having(has func(fwk.NodeInfo) bool) ([]fwk.NodeInfo, error) {
	all, err := l.List()
	if err != nil {
		return nil, err
	}
	var found []fwk.NodeInfo
	for _, n := range all {
		if has(n) {
			found = append(found, n)
		}
	}
	return found, nil
}

func (l *lister) Get(name string) (fwk.NodeInfo, error) {
	if t := l.shadow.current; t != nil {
		if i, ok := t.position(name); ok {
			return t.infos[i], nil
		}
	}
	return nil, fmt.Errorf("node %q is not part of the trial", name)
}

func (l *lister) IsPVCUsedByPods(key string) bool {
	t := l.shadow.current
	return t != nil && t.base.claims[key]+t.claims[key] > 0
}
