package app

import (
	"fmt"
	"net/http"
)

// fence lets nothing be written while it is not certain that this process holds the provisioner's lease.
// All that costs money begins with a NodeClaim, so fencing the objects of karpenter.sh is enough.
type fence struct {
	next http.RoundTripper
	// leads is gate.Leads.
	leads func() error
}

// RoundTrip implements http.RoundTripper.
func (f fence) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		if err := f.leads(); err != nil {
			if request.Body != nil {
				_ = request.Body.Close()
			}
			return nil, fmt.Errorf("nothing is written: %w", err)
		}
	}
	return f.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport below.
func (f fence) WrappedRoundTripper() http.RoundTripper { return f.next }
