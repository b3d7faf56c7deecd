// Package ec2sim is an HTTP server that speaks the wire protocols of EC2, IAM,
// STS, SSM, Pricing, EKS and SQS, so that the
// unmodified aws-sdk-go-v2 works against it through AWS_ENDPOINT_URL.
//
// Its place in the flow: the provisioner calls it as if it were AWS, the
// simulated kubelets subscribe to its instances, and tests and benchmarks read
// its journal. It knows what the catalogue of package facts knows, keeps all
// state in memory, and asks only its own clock: same options and same calls in
// the same order give the same replies.
//
// Where AWS hides something, ec2sim hides it too. How deep a spot pool is, which
// zone is fullest and how much memory a machine really reports follow from the
// seed, and no reply tells them. Only the Go methods of Server, which a test or
// a demo may use and the provisioner may not, look behind the scene.
//
// Only tests and cmd/berth-local import this package.
package ec2sim
