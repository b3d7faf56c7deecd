// Package message reads what EventBridge puts into the interruption queue: which instances are affected,
// and what is going to happen to them.
//
// Place in the flow: the interruption loop hands it the body of each message and acts on the result. It
// is pure, strict about what decides over machines, and tolerant of everything else.
package message
