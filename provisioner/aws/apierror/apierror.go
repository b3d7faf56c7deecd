package apierror

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/berth-dev/berth/provisioner/cloud"
)

// Codes that callers look for by name.
const (
	DryRunOperation             = "DryRunOperation"
	IdempotentParameterMismatch = "IdempotentParameterMismatch"
	InsufficientFreeAddresses   = "InsufficientFreeAddressesInSubnet"
	LaunchTemplateExists        = "InvalidLaunchTemplateName.AlreadyExistsException"
	LaunchTemplateNotFound      = "InvalidLaunchTemplateName.NotFoundException"
	RequestLimitExceeded        = "RequestLimitExceeded"
	SpotRoleNotPermitted        = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
	UnauthorizedOperation       = "UnauthorizedOperation"
	InvalidParameterValue       = "InvalidParameterValue"
)

// Code returns the error code of an AWS answer, "" when err is none.
func Code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

var (
	unfulfillable = []string{"InsufficientInstanceCapacity", "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "UnfulfillableCapacity",
		"Unsupported", InsufficientFreeAddresses, "MaxFleetCountExceeded", "ReservationCapacityExceeded"}
	notFound = []string{"InvalidCapacityReservationId.NotFound", "InvalidInstanceID.NotFound", LaunchTemplateNotFound,
		"InvalidLaunchTemplateId.NotFound", "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "NoSuchEntity", "ParameterNotFound"}
)

// IsUnfulfillable reports whether the code of a fleet error says that EC2 has none of it now.
func IsUnfulfillable(code string) bool { return slices.Contains(unfulfillable, code) }

// IsNotFound reports whether AWS knows no such thing.
func IsNotFound(err error) bool { return slices.Contains(notFound, Code(err)) }

// IsDryRunSuccess reports whether a dry run would have worked.
func IsDryRunSuccess(err error) bool { return Code(err) == DryRunOperation }

// IsThrottled reports whether AWS refused the call for its rate.
func IsThrottled(err error) bool {
	_, throttle := retry.DefaultThrottleErrorCodes[Code(err)]
	return throttle
}

// IsServerFault reports whether the call failed on AWS's side, or for its rate, so that it says nothing
// about the request.
func IsServerFault(err error) bool {
	if IsThrottled(err) {
		return true
	}
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return response.HTTPStatusCode() >= http.StatusInternalServerError
	}
	return false
}

// IsDefinite reports whether AWS answered and did nothing: a repetition of the call need not be the
// same call. Without an answer nobody knows.
func IsDefinite(err error) bool {
	return Code(err) != "" && !IsServerFault(err) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// Class is an error in the words of a condition.
type Class struct{ Reason, Message string }

type rule struct {
	any, all []string
	class    Class
}

const unauthorized = "User is not authorized to perform this operation"

var authCodes = []string{UnauthorizedOperation, "AccessDenied", "AuthFailure"}

// rules are tried in order; the first one that matches counts.
var rules = []rule{
	{any: []string{SpotRoleNotPermitted}, class: Class{"SpotSLRCreationFailed", "User does not have sufficient permission to create the Spot ServiceLinkedRole to launch spot instances"}},
	{any: authCodes, all: []string{"with an explicit deny in a permissions boundary"}, class: Class{"Unauthorized", unauthorized + " due to a permission boundary"}},
	{any: authCodes, all: []string{"with an explicit deny in a service control policy"}, class: Class{"Unauthorized", unauthorized + " due to a service control policy"}},
	{any: authCodes, all: []string{"Not authorized for images"}, class: Class{"AMIAuthorizationFailure", "User is not authorized for AMI used in instance launch"}},
	{any: authCodes, class: Class{"Unauthorized", unauthorized + " because no identity-based policy allows it"}},
	{all: []string{"InvalidParameter", "belong to different networks"}, class: Class{"SecurityGroupSubnetVPCMismatch", "Security groups and subnets must be in the same VPC."}},
	{all: []string{"iamInstanceProfile.name is invalid"}, class: Class{"InstanceProfileNameInvalid", "Instance profile name used from EC2NodeClass status does not exist"}},
	{all: []string{"InvalidLaunchTemplateId.NotFound"}, class: Class{"LaunchTemplateNotFound", "Launch template used for instance launch wasn't found"}},
	{all: []string{"User data is limited to"}, class: Class{"UserDataSizeLimitExceeded", "Rendered user data exceeds the EC2 user data size limit"}},
	{all: []string{"InvalidAMIID.Malformed"}, class: Class{"InvalidAMIID", "AMI used for instance launch is invalid"}},
	{all: []string{"InvalidAMIID.NotFound"}, class: Class{"AMINotFound", "AMI used for instance launch either does not exist or you don't have permissions to use it"}},
	{all: []string{RequestLimitExceeded}, class: Class{RequestLimitExceeded, "Request limit exceeded"}},
	{all: []string{"InternalError"}, class: Class{"InternalError", "An internal error has occurred"}},
	{all: []string{"not eligible for Free Tier"}, class: Class{"FreeTierIneligible", "The specified instance type is not eligible for Free Tier"}},
	{all: []string{"MaxFleetCountExceeded"}, class: Class{"FleetQuotaExceeded", "A fleet launch was requested but this would exceed your fleet request quota"}},
	{all: []string{"PendingVerification"}, class: Class{"AccountPendingVerification", "An instance launch was requested but the request for launching resources in this region is still being verified"}},
	{all: []string{"MaxSpotInstanceCountExceeded"}, class: Class{"SpotQuotaExceeded", "A spot instance launch was requested but this would exceed your spot instance quota"}},
	{all: []string{"VcpuLimitExceeded"}, class: Class{"VCPULimitExceeded", "An instance was requested that would exceed your VCPU quota"}},
	{all: []string{InsufficientFreeAddresses}, class: Class{InsufficientFreeAddresses, "There are not enough free IP addresses to launch an instance in this subnet"}},
}

// Classify puts an error, or the text of a fleet error, into words.
func Classify(text string) Class {
	for _, r := range rules {
		if r.matches(text) {
			return r.class
		}
	}
	return Class{"LaunchFailed", "Instance launch failed"}
}

func (r rule) matches(text string) bool {
	if len(r.any) > 0 && !slices.ContainsFunc(r.any, func(s string) bool { return strings.Contains(text, s) }) {
		return false
	}
	for _, s := range r.all {
		if !strings.Contains(text, s) {
			return false
		}
	}
	return true
}

// ForCaller turns a failed launch call into the error that callers of cloud.Provider branch on.
func ForCaller(err error) error {
	if IsThrottled(err) {
		return &cloud.ThrottledError{Err: err}
	}
	c := Classify(err.Error())
	return &cloud.CreateError{Reason: c.Reason, Message: c.Message, Err: err}
}
