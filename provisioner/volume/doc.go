// Package volume reads what the volumes of a pod demand of the node that it runs on.
//
// Place in the flow: the facade asks it about every pod with claims before a solve. Pods whose volumes
// cannot be had yet are refused with the fault; what the others demand goes into the solver's problem as
// alternatives, beside the pod's own node affinity. How many volumes a node takes is left to the filters.
package volume
