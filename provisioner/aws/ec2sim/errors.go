package ec2sim

import (
	"fmt"
	"net/http"
)

// apiError is a service's refusal in the form that a client sees.
type apiError struct {
	code, message string
	status        int
	queryCode     string // SQS: the older code that the SDK reports
}

func refuse(status int, code, format string, args ...any) *apiError {
	return &apiError{code: code, message: fmt.Sprintf(format, args...), status: status}
}

func badRequest(code, format string, args ...any) *apiError {
	return refuse(http.StatusBadRequest, code, format, args...)
}

func dryRun() *apiError {
	return refuse(http.StatusPreconditionFailed, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
}

func missing(parameter string) *apiError {
	return badRequest("MissingParameter", "The request must contain the parameter %s", parameter)
}

// injected makes the refusal that EC2 gives for a code, for errors asked for by
// tests and scripts.
func injected(code string) *apiError {
	known := map[string]struct {
		status  int
		message string
	}{
		"DryRunOperation":              {http.StatusPreconditionFailed, "Request would have succeeded, but DryRun flag is set."},
		"RequestLimitExceeded":         {http.StatusServiceUnavailable, "Request limit exceeded."},
		"Throttling":                   {http.StatusBadRequest, "Rate exceeded"},
		"ThrottlingException":          {http.StatusBadRequest, "Rate exceeded"},
		"InternalError":                {http.StatusInternalServerError, "An internal error has occurred"},
		"Unavailable":                  {http.StatusServiceUnavailable, "The service is unavailable. Please try again shortly."},
		"ServiceUnavailable":           {http.StatusServiceUnavailable, "The service is unavailable. Please try again shortly."},
		"InsufficientInstanceCapacity": {http.StatusInternalServerError, "We currently do not have sufficient capacity for the requested instance."},
		"UnauthorizedOperation": {http.StatusForbidden,
			"You are not authorized to perform this operation because no identity-based policy allows it."},
		"AccessDenied":          {http.StatusForbidden, "User is not authorized to perform this operation."},
		"AccessDeniedException": {http.StatusForbidden, "User is not authorized to perform this operation."},
		"AuthFailure":           {http.StatusUnauthorized, "AWS was not able to validate the provided access credentials"},
		"VcpuLimitExceeded":     {http.StatusBadRequest, "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket."},
		"NoSuchEntity":          {http.StatusNotFound, "The entity cannot be found."},
	}
	if k, ok := known[code]; ok {
		return refuse(k.status, code, "%s", k.message)
	}
	return badRequest(code, "The request failed on purpose.")
}
