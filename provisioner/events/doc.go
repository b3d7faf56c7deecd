// Package events has the reasons and wordings of the Kubernetes events that Berth sends, and the
// recorder that keeps it from repeating itself.
//
// Place in the flow: every controller tells people through it what it did or why it could not.
package events
