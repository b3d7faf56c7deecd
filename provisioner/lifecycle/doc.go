// Package lifecycle takes every NodeClaim through its life: launch, registration of its Node,
// initialization, and at the end drain and termination. It also finds what a crash left behind, in both
// directions: claims whose instance is gone, and instances whose claim is gone.
//
// Place in the flow: launch writes claims and calls Start; from then on the Controller alone writes
// their status. Every step looks at the API and the cloud as they are, so that it can be taken again
// after a crash at any moment.
package lifecycle
