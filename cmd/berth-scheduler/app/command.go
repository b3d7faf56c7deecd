package app

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
)

const long = `berth-scheduler is a kube-scheduler that provisions nodes: a pod that fits nowhere gets
a node bought for it. It takes the flags and the configuration of a kube-scheduler. Without --config it
runs one profile, named berth, for pods with schedulerName: berth.`

// NewCommand returns the command line of the scheduler, with plugins beside the in-tree ones and ours.
// It handles SIGTERM and SIGINT.
func NewCommand(plugins ...Option) *cobra.Command {
	f, err := newFlags()
	if err != nil {
		// The environment has a value that cannot be used. The command exists, and says so when run.
		return &cobra.Command{
			Use: "berth-scheduler", Long: long, SilenceUsage: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error { return err },
		}
	}
	cmd := &cobra.Command{
		Use: "berth-scheduler", Long: long, SilenceUsage: true, Args: cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error { return f.upstream.ComponentGlobalsRegistry.Set() },
		RunE:              func(cmd *cobra.Command, _ []string) error { return runCommand(cmd, f, plugins) },
	}
	sections := f.sections()
	verflag.AddFlags(sections.FlagSet("global"))
	globalflag.AddGlobalFlags(sections.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, section := range sections.FlagSets {
		cmd.Flags().AddFlagSet(section)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, *sections, columns)
	return cmd
}

func runCommand(cmd *cobra.Command, f *flags, plugins []Option) error {
	verflag.PrintAndExitIfRequested()
	if level := verbosities[f.settings.LogLevel]; level != "" && !cmd.Flags().Changed("v") {
		if err := cmd.Flags().Set("v", level); err != nil {
			return fmt.Errorf("set the verbosity of LOG_LEVEL=%s: %w", f.settings.LogLevel, err)
		}
	}
	if f.settings.MemoryLimit > 0 {
		debug.SetMemoryLimit(f.settings.MemoryLimit / 10 * 9) // the rest is for what the heap does not count
	}
	gates := f.upstream.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(f.upstream.Logs, gates); err != nil {
		return fmt.Errorf("apply log flags: %w", err)
	}
	cliflag.PrintFlags(cmd.Flags())
	if f.upstream.InformerName == nil {
		name, err := cache.NewInformerName("berth-scheduler")
		if err != nil {
			return err
		}
		f.upstream.InformerName = name
	}
	if mutable, ok := gates.(featuregate.MutableFeatureGate); ok {
		mutable.AddMetrics()
	}
	f.upstream.ComponentGlobalsRegistry.AddMetrics()
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	go func() {
		<-server.SetupSignalHandler()
		cancel()
	}()
	klog.FromContext(ctx).Info("Starting berth-scheduler", "version", version.Get())
	return run(ctx, f, Options{Plugins: plugins})
}
