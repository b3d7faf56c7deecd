// Package wirefuzz holds the tests of ec2sim that must not be built together
// with the AWS SDK: fuzzing and the race detector instrument every package that
// is linked in, and for the SDK that takes minutes.
package wirefuzz
