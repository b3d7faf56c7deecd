// Package check proves that a plan keeps every hard rule. It shares no code with the solver beyond the
// types of problem and plan: labels go through the API machinery's own matchers, and every machine that
// a claim may become is looked at by itself.
//
// Place in the flow: none; tests import it.
package check
