// Package userdata writes what a machine is told at its first boot: how to join the cluster, with which
// labels, taints and kubelet settings, merged with the user's own commands.
//
// Place in the flow: template renders one text per launch template. Pure; the same input gives the same
// text, so that equal launches share a template. Golden files show the output of every family.
package userdata
