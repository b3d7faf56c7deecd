// Package instance reads, tags and ends EC2 instances, joining the calls of many claims into few.
//
// Place in the flow: fleet makes instances; the provider looks after them through this package.
package instance
