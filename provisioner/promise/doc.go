// Package promise remembers which pod was promised room on which claim or node, which pods are being
// planned for, and which were refused and why.
//
// Place in the flow: the plugin reads it inside the scheduling cycle, in well under a microsecond; the
// facade and launch write it. Memory only: what must survive a restart stands on the NodeClaims, from
// where the facade rebuilds the table. Pure: the time is an argument.
package promise
