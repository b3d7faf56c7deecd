package pricing_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
)

// newSim serves a simulated AWS whose clock the test moves.
func newSim(t *testing.T, change func(*ec2sim.Options)) (*ec2sim.Server, *clocktesting.FakeClock, aws.Config) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
	opts := ec2sim.Options{Seed: 1, Clock: clock}
	if change != nil {
		change(&opts)
	}
	server, err := ec2sim.New(opts)
	require.NoError(t, err)
	url, err := server.Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return server, clock, aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(url), RetryMaxAttempts: 3, // long replies over loopback are cut short now and then
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIATEST", SecretAccessKey: "secret"}, nil
		}),
	}
}
