// Package nodepool is the NodePool controller: it validates what admission cannot, follows the
// readiness of the pool's class, judges whether launches become nodes, publishes what the pool uses,
// and keeps the hash that drift is detected by.
//
// Place in the flow: the facade buys only for pools that are Ready here; lifecycle reports how
// registrations went; state supplies the usage. It never creates or deletes anything.
package nodepool
