package app

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// flagSet is the section of --help that is ours.
const flagSet = "provisioner"

// flags are what the command line can say: upstream's options and our settings, bound to one list.
type flags struct {
	upstream *options.Options
	settings *Settings
}

// newFlags returns the flags with their defaults, which the environment may have changed.
func newFlags() (*flags, error) {
	settings, err := settingsFromEnv(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	return flagsFor(settings), nil
}

func flagsFor(settings *Settings) *flags {
	f := &flags{upstream: options.NewOptions(), settings: settings}
	settings.addFlags(f.upstream.Flags.FlagSet(flagSet))
	// What upstream would use when the configuration names no lease; ours does.
	if lease := f.upstream.Flags.FlagSet("leader election").Lookup("leader-elect-resource-name"); lease != nil {
		lease.DefValue = leaseName
	}
	return f
}

func (f *flags) sections() *cliflag.NamedFlagSets { return f.upstream.Flags }

// parse reads arguments for a Run inside another process.
func (f *flags) parse(args []string) error {
	all := pflag.NewFlagSet("berth-scheduler", pflag.ContinueOnError)
	for _, section := range f.sections().FlagSets {
		all.AddFlagSet(section)
	}
	if err := all.Parse(args); err != nil {
		return fmt.Errorf("parse arguments: %w", err)
	}
	if all.NArg() > 0 {
		return fmt.Errorf("parse arguments: %q is not a flag", all.Arg(0))
	}
	return nil
}

// changed reports whether the command line has the flag of the section.
func (f *flags) changed(section, name string) bool {
	return f.sections().FlagSet(section).Changed(name)
}

// connection returns what the flags, which upstream honours only without --config, say about the API
// server.
func (f *flags) connection() connection {
	var c connection
	if f.upstream.ConfigFile != "" {
		return c
	}
	d := f.upstream.Deprecated
	if f.changed("deprecated", "kubeconfig") {
		c.kubeconfig = d.Kubeconfig
	}
	if f.changed("deprecated", "kube-api-content-type") {
		c.contentType = d.ContentType
	}
	if f.changed("deprecated", "kube-api-qps") {
		c.qps = float64(d.QPS)
	}
	if f.changed("deprecated", "kube-api-burst") {
		c.burst = float64(d.Burst)
	}
	return c
}
