// Package budget says how many nodes of a pool may be disrupted at one time.
//
// Place in the flow: the disruption controller asks once per pool and reason and round, and takes one
// off for every node it chooses. It is pure; the time is handed in.
package budget
