// Package nodeclass keeps the status of EC2NodeClasses: what their selectors resolve to, and whether
// machines can be made from them.
//
// Place in the flow: launches and instance types are computed from the status that it writes. Each
// class is worked on alone, so a broken one never holds up another.
package nodeclass
