// Package controlplane runs a real Kubernetes control plane inside the process: etcd, kube-apiserver
// and the controllers of kube-controller-manager. The scheduler is not part of it.
//
// Place in the flow: cmd/berth-local starts it first; everything else talks to it through its REST
// configuration, as to any cluster.
package controlplane
