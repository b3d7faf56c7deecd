package apierror_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/aws/apierror"
	"github.com/berth-dev/berth/provisioner/cloud"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for text, reason := range map[string]string{
		"AuthFailure.ServiceLinkedRoleCreationNotPermitted: x":                              "SpotSLRCreationFailed",
		"UnauthorizedOperation: no identity-based policy":                                   "Unauthorized",
		"UnauthorizedOperation: with an explicit deny in a service control policy":          "Unauthorized",
		"AccessDenied: Not authorized for images: [ami-1]":                                  "AMIAuthorizationFailure",
		"InvalidParameter: sg-1 and subnet-1 belong to different networks":                  "SecurityGroupSubnetVPCMismatch",
		"InvalidParameterValue: Value (x) for parameter iamInstanceProfile.name is invalid": "InstanceProfileNameInvalid",
		"InvalidUserData.Malformed: User data is limited to 16384 bytes":                    "UserDataSizeLimitExceeded",
		"InvalidAMIID.Malformed: x":                                                         "InvalidAMIID",
		"InvalidAMIID.NotFound: x":                                                          "AMINotFound",
		"RequestLimitExceeded: x":                                                           "RequestLimitExceeded",
		"InternalError: x":                                                                  "InternalError",
		"MaxFleetCountExceeded: x":                                                          "FleetQuotaExceeded",
		"MaxSpotInstanceCountExceeded: x":                                                   "SpotQuotaExceeded",
		"VcpuLimitExceeded: x":                                                              "VCPULimitExceeded",
		"InsufficientFreeAddressesInSubnet: x":                                              "InsufficientFreeAddressesInSubnet",
		"SomethingElse: x":                                                                  "LaunchFailed",
	} {
		got := apierror.Classify(text)
		require.Equal(t, reason, got.Reason, text)
		require.NotEmpty(t, got.Message)
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	coded := func(code string) error { return fmt.Errorf("call: %w", &smithy.GenericAPIError{Code: code}) }
	require.True(t, apierror.IsNotFound(coded("InvalidInstanceID.NotFound")))
	require.False(t, apierror.IsNotFound(coded("InvalidInstanceID.Malformed")))
	require.True(t, apierror.IsThrottled(coded("RequestLimitExceeded")))
	require.True(t, apierror.IsUnfulfillable("InsufficientInstanceCapacity"))
	require.False(t, apierror.IsUnfulfillable("UnauthorizedOperation"))
	require.True(t, apierror.IsDryRunSuccess(coded("DryRunOperation")))
	require.True(t, apierror.IsDefinite(coded("UnauthorizedOperation")))
	require.False(t, apierror.IsDefinite(errors.New("connection reset")), "nobody knows what EC2 did")
	require.False(t, apierror.IsDefinite(context.DeadlineExceeded))
	require.False(t, apierror.IsDefinite(coded("RequestLimitExceeded")))

	var throttled *cloud.ThrottledError
	require.ErrorAs(t, apierror.ForCaller(coded("RequestLimitExceeded")), &throttled)
	var failed *cloud.CreateError
	require.ErrorAs(t, apierror.ForCaller(coded("UnauthorizedOperation")), &failed)
	require.Equal(t, "Unauthorized", failed.Reason)
}
