// Package refresh repeats a job for ever: at a steady period while it succeeds, with growing pauses
// while it fails.
//
// Place in the flow: whatever asks AWS for slowly changing facts runs in such a loop.
package refresh
