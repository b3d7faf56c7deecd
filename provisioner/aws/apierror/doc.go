// Package apierror sorts the errors of AWS into those that callers branch on and puts them into words
// for conditions, events and metrics.
//
// Place in the flow: fleet and nodeclass classify what EC2 answered. Pure.
package apierror
