// Package demo runs the main job on an all-in-one cluster and tells it as a story with times: pods
// pending, capacity asked for, NodeClaim, CreateFleet, Node, bound; then scale-down and the removal of
// the empty nodes. Every step counts only when it was seen through the API.
package demo
