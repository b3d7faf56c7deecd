// Package testing is the home of what tests of several packages share. It has no code of its own: package
// gen makes random problems, package scenario reads planning scenarios and makes
// those of the benchmark, package check proves that a plan
// keeps every hard rule.
//
// Place in the flow: none; only tests import what is below.
package testing
