// Package fit asks the scheduler's own filter plugins whether a pod may go on a node, existing or not.
// It implements solver.Fit.
//
// Place in the flow: the composition root builds one Fit from the profiles of the running scheduler,
// after those exist and before informers start. The solver opens a trial over a snapshot, adds the
// nodes it thinks of, and has every placement confirmed by the filters of the profile that will
// schedule the pod.
//
// Each profile gets a second framework of its own: the same plugins with the same arguments at
// PreFilter, Filter and Reserve, under another profile name, over listers that show the trial instead
// of the cluster. Volumes and claims are read from the same informers; what is reserved in a trial is
// given back when it ends. Devices of dynamic resource allocation are only checked, not reserved, so two
// pods of one trial may count on the same device. Extenders are not asked.
package fit
