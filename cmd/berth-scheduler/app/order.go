package app

import (
	"errors"
	"fmt"
	"slices"

	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/berth-dev/berth/plugins/nodeprovision"
)

// checkOrder refuses profiles in which the plugin stands where it does not work: after other filters it
// is not the recorded reason why a pod waits for its node, and no event wakes the pod at once.
func checkOrder(profile string, plugins *schedulerconfig.Plugins) error {
	var errs []error
	first := func(point string, set schedulerconfig.PluginSet) {
		if len(set.Enabled) == 0 || set.Enabled[0].Name != nodeprovision.Name {
			errs = append(errs, fmt.Errorf("profile %s: %s must come first at %s; name it there too: plugins.%s.enabled: [{name: %s}]",
				profile, nodeprovision.Name, point, point, nodeprovision.Name))
		}
	}
	first("preFilter", plugins.PreFilter)
	first("filter", plugins.Filter)
	first("reserve", plugins.Reserve)
	place := func(name string) int {
		return slices.IndexFunc(plugins.PostFilter.Enabled, func(p schedulerconfig.Plugin) bool { return p.Name == name })
	}
	ours, devices, preemption := place(nodeprovision.Name), place(names.DynamicResources), place(names.DefaultPreemption)
	switch {
	case ours < 0:
		errs = append(errs, fmt.Errorf("profile %s: %s is missing at postFilter", profile, nodeprovision.Name))
	case devices >= 0 && devices < ours && (preemption < 0 || preemption > ours):
		errs = append(errs, fmt.Errorf("profile %s: at postFilter, put %s either before %s or after %s: plugins.postFilter: {disabled: [{name: \"*\"}], enabled: [{name: %s}, {name: %s}, {name: %s}]}",
			profile, nodeprovision.Name, names.DynamicResources, names.DefaultPreemption, nodeprovision.Name, names.DynamicResources, names.DefaultPreemption))
	}
	return errors.Join(errs...)
}

// uses reports whether the plugin is in the profile at all.
func uses(plugins *schedulerconfig.Plugins) bool {
	return slices.ContainsFunc([]schedulerconfig.PluginSet{plugins.PreFilter, plugins.Filter, plugins.PostFilter, plugins.Reserve},
		func(set schedulerconfig.PluginSet) bool {
			return slices.ContainsFunc(set.Enabled, func(p schedulerconfig.Plugin) bool { return p.Name == nodeprovision.Name })
		})
}

var _ interface {
	ListPlugins() *schedulerconfig.Plugins
} = framework.Framework(nil)
