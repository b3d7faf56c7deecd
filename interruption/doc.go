// Package interruption listens to EC2's announcements that instances will go, and acts at once.
//
// Place in the flow: messages come from an SQS queue that EventBridge fills. Each names instances; their
// NodeClaims are deleted, whereupon the provisioner plans for their pods in the same moment and lifecycle
// drains the nodes. A spot offering that was taken back is not bought again right away. Everything is
// idempotent, as messages come at least once and in any order; a message is deleted when it has been
// dealt with, and comes again when that failed.
package interruption
