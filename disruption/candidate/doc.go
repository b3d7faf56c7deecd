// Package candidate says which nodes may be disrupted at all, what it costs to move their pods, and
// when a node has been quiet for long enough.
//
// Place in the flow: the disruption controller puts every node of a snapshot to it, and again right
// before it acts. It is pure; the time is handed in.
package candidate
