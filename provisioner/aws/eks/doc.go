// Package eks asks EKS what the API server of the cluster cannot tell: the CIDR of its services.
//
// Place in the flow: nodeclass resolves it once for classes that need it, fleet writes it into user data.
package eks
