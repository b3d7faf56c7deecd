package scheme

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/berth-dev/berth/plugins/config"
	configv1 "github.com/berth-dev/berth/plugins/config/v1"
)

// AddToScheme registers both forms of the arguments.
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(config.AddToScheme(scheme), configv1.AddToScheme(scheme))
}

// Decode returns the arguments, defaulted, from what the framework gives to a plugin's factory: nil for
// none, *runtime.Unknown with JSON or YAML, or the internal form. Unknown fields, twice-given fields
// and other kinds are errors. The result is the caller's own.
func Decode(obj runtime.Object) (*config.NodeProvisionArgs, error) {
	var raw []byte
	switch args := obj.(type) {
	case nil:
	case *config.NodeProvisionArgs:
		return args.DeepCopy(), nil
	case *runtime.Unknown:
		if args != nil {
			raw = args.Raw
		}
	default:
		return nil, fmt.Errorf("decode %s: arguments have type %T", config.Kind, obj)
	}
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register %s: %w", config.Kind, err)
	}
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	kind := configv1.SchemeGroupVersion.WithKind(config.Kind)
	decoded, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).
		UniversalDecoder(config.SchemeGroupVersion).Decode(raw, &kind, nil)
	if err != nil {
		return nil, fmt.Errorf("decode %s (apiVersion %s): %w", config.Kind, configv1.SchemeGroupVersion, err)
	}
	args, ok := decoded.(*config.NodeProvisionArgs)
	if !ok {
		return nil, fmt.Errorf("decode %s: arguments have type %T", config.Kind, decoded)
	}
	return args, nil
}
