// Package cases runs case files end to end: one file tells a cluster as it was before, what happens, and
// what must hold afterwards. Each case gets an all-in-one cluster in a process of its own (a process can
// run one control plane), with the instance types, prices and subnets that the file names.
//
// Place in the flow: `berth-local cases DIR` and `make cases` call Run. Reading a file, building objects
// from it and judging what was observed are pure; only the runner talks to the cluster.
//
// What a file says and this package does not understand is named in a SKIP line; a case passes only when
// all of it was understood, done and found true.
package cases
