// Package schedulertest runs the real upstream scheduler against a fake API server. Tests only.
//
// Place in the flow: none; the tests of plugins and of provisioner/fit use it where the framework's own
// behaviour is the subject.
package schedulertest
