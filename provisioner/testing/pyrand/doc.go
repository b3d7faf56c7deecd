// Package pyrand draws the same random numbers as Python's random module, so that scenarios written by a
// Python program can be made again without Python.
//
// Place in the flow: none; the generator of benchmark scenarios imports it.
package pyrand
