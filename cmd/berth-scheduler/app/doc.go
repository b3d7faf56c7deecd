// Package app is the composition root of berth-scheduler: it makes the scheduler, the plugin, the
// filters for what-ifs and the provisioner, and runs them with leadership.
//
// Place in the flow: main calls NewCommand, berth-local calls Run. A build with more plugins is a main
// of its own:
//
//	func main() { os.Exit(cli.Run(app.NewCommand(app.WithPlugin("Mine", mine.New)))) }
//
// Two leases are held. The scheduler's own decides which replica schedules; the process ends when it is
// lost. The provisioner's, which Karpenter uses too, decides who buys nodes in the cluster; while
// somebody else holds it, scheduling goes on.
package app
