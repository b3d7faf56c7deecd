// Package message reads EventBridge events about EC2 instances out of SQS bodies.
//
// Place in the flow: SQS body -> Parse -> Message -> interruption decides and acts. Pure: no clock,
// no I/O, no client.
package message
