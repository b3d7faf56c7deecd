package cloud

import "errors"

// NoCapacityError says that the cloud has none of what was asked for now. It is daily weather:
// callers strike the offerings out and plan again.
type NoCapacityError struct {
	Err error // the cloud's answer, never nil
}

func (e *NoCapacityError) Error() string { return "no capacity: " + e.Err.Error() }
func (e *NoCapacityError) Unwrap() error { return e.Err }

// NotFoundError says that an instance does not exist (any more).
type NotFoundError struct {
	Err error // never nil
}

func (e *NotFoundError) Error() string { return "not found: " + e.Err.Error() }
func (e *NotFoundError) Unwrap() error { return e.Err }

// ClassNotReadyError says that the claim's node class is missing, being deleted or not ready.
type ClassNotReadyError struct {
	Err error // never nil
}

func (e *ClassNotReadyError) Error() string { return "node class not ready: " + e.Err.Error() }
func (e *ClassNotReadyError) Unwrap() error { return e.Err }

// CreateError is a failed launch that may succeed later. Reason is PascalCase for the Launched
// condition and Message is written for the operator; both are non-empty.
type CreateError struct {
	Reason, Message string
	Err             error // never nil
}

func (e *CreateError) Error() string { return e.Message + ": " + e.Err.Error() }
func (e *CreateError) Unwrap() error { return e.Err }

// ThrottledError says that the cloud refused the call for its rate; the same call may be repeated
// after a pause.
type ThrottledError struct {
	Err error // never nil
}

func (e *ThrottledError) Error() string { return "throttled: " + e.Err.Error() }
func (e *ThrottledError) Unwrap() error { return e.Err }

// IsNotFound reports whether err is or wraps a *NotFoundError.
func IsNotFound(err error) bool {
	_, ok := errors.AsType[*NotFoundError](err)
	return ok
}

// IsNoCapacity reports whether err is or wraps a *NoCapacityError.
func IsNoCapacity(err error) bool {
	_, ok := errors.AsType[*NoCapacityError](err)
	return ok
}

// IsClassNotReady reports whether err is or wraps a *ClassNotReadyError.
func IsClassNotReady(err error) bool {
	_, ok := errors.AsType[*ClassNotReadyError](err)
	return ok
}
