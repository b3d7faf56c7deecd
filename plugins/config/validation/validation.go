package validation

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/plugins/config"
)

var (
	preemptions = []config.PreemptionPolicy{config.ProvisionFirst, config.PreemptFirst, config.Never}
	holds       = []config.HoldPolicy{config.HoldEqualOrLower, config.HoldAll}
	preferences = []config.PreferencePolicy{config.PreferenceGuide, config.PreferenceRespect, config.PreferenceIgnore}
	minValues   = []config.MinValuesPolicy{config.MinValuesStrict, config.MinValuesBestEffort}
)

// NodeProvision returns every fault of defaulted arguments.
func NodeProvision(path *field.Path, args *config.NodeProvisionArgs) field.ErrorList {
	errs := preemption(path.Child("preemption"), args.Preemption)
	errs = append(errs, oneOf(path.Child("hold"), args.Hold, holds)...)
	errs = append(errs, oneOf(path.Child("preferencePolicy"), args.PreferencePolicy, preferences)...)
	errs = append(errs, oneOf(path.Child("minValuesPolicy"), args.MinValuesPolicy, minValues)...)
	errs = append(errs, classes(path.Child("priorityClassPolicies"), args.PriorityClassPolicies)...)
	if args.BatchIdleDuration <= 0 {
		errs = append(errs, field.Invalid(path.Child("batchIdleDuration"), args.BatchIdleDuration.String(), "must be longer than 0s"))
	}
	if args.BatchMaxDuration < args.BatchIdleDuration {
		errs = append(errs, field.Invalid(path.Child("batchMaxDuration"), args.BatchMaxDuration.String(),
			"must be at least batchIdleDuration, "+args.BatchIdleDuration.String()))
	}
	seen := map[string]bool{}
	for i, name := range args.ProvisionFor {
		at := path.Child("provisionFor").Index(i)
		switch {
		case name == "":
			errs = append(errs, field.Required(at, "name a scheduler, for example default-scheduler"))
		case seen[name]:
			errs = append(errs, field.Duplicate(at, name))
		}
		seen[name] = true
	}
	return errs
}

func preemption(path *field.Path, value config.PreemptionPolicy) field.ErrorList {
	if value == config.Cheapest {
		return field.ErrorList{field.Invalid(path, value,
			"is reserved and not available yet; use ProvisionFirst, PreemptFirst or Never")}
	}
	return oneOf(path, value, preemptions)
}

func oneOf[T ~string](path *field.Path, value T, supported []T) field.ErrorList {
	if slices.Contains(supported, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, supported)}
}

func classes(path *field.Path, policies []config.PriorityClassPolicy) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, policy := range policies {
		at := path.Index(i)
		errs = append(errs, preemption(at.Child("preemption"), policy.Preemption)...)
		names := at.Child("priorityClassNames")
		if len(policy.PriorityClassNames) == 0 {
			errs = append(errs, field.Required(names, "name at least one PriorityClass"))
		}
		for j, name := range policy.PriorityClassNames {
			switch {
			case name == "":
				errs = append(errs, field.Required(names.Index(j), "name a PriorityClass"))
			case seen[name]:
				errs = append(errs, field.Duplicate(names.Index(j), name))
			}
			seen[name] = true
		}
	}
	return errs
}
