// Package kubelet reads and checks the kubelet settings of an EC2NodeClass.
//
// Place in the flow: nodeclass reports the mistakes that Check finds; types computes capacity from
// Config; userdata hands the settings to the machine. Pure.
package kubelet
