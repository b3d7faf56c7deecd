// Package brute finds the best plan for a tiny cluster by trying everything: the most pods, and among those
// plans the cheapest. It shares no code with the solver and reads the rules as the scheduler documents them.
//
// Place in the flow: none; tests import it.
package brute
