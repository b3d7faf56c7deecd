// Package method decides what is worth disrupting: whether a node has drifted, when it expires, and
// whether a plan for the pods of some nodes is worth carrying out.
//
// Place in the flow: the disruption controller gathers nodes and plans, asks here, and acts. It is pure;
// time, prices and plans are handed in.
package method
