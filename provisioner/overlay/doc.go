// Package overlay applies NodeOverlays: corrections that people make to what the provider tells of instance
// types, namely their prices, and resources that only a device plugin on a running node would reveal.
//
// Place in the flow: the facade gets the types of a pool from the provider and has them adjusted here before
// it solves; the provider does the same before it launches, so that both choose by the same prices. The
// Controller judges the overlays, writes their conditions, and compares what they declare with the nodes that
// come: a resource that the first real node does not have is not counted on again. Rules, conflicts and
// their application are pure (rule.go, conflict.go, apply.go, learn.go); book.go remembers results.
package overlay
