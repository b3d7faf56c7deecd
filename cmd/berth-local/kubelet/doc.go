// Package kubelet simulates kubelets: it makes Nodes, leases and pod status out of machines.
//
// Place in the flow: the EC2 simulator says which machines run; the package registers their Nodes after
// the boot, admits pods as a real kubelet would (against what the machine truly has), runs them, honours
// grace periods and finishes Jobs. It knows nothing of the provisioner.
package kubelet
