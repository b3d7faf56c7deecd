// Package allinone puts a whole cluster into one process: control plane, EC2 simulator, simulated
// kubelets and the Berth scheduler.
//
// Place in the flow: `berth-local up`, the demo, the case runner and the end-to-end tests start their
// cluster here. It only wires; the parts live in controlplane, kubelet, ec2sim and berth-scheduler/app.
package allinone
