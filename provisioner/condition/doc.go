// Package condition has the rules that the status conditions of every kind follow: which ones exist,
// when their time moves, how the root sums up those that it depends on, and in which order they are
// stored.
//
// Place in the flow: the controllers that own a kind's status call it on a copy of the object before
// they write. It is pure; times are handed in.
package condition
