// Package catalog describes what can be bought: instance types, their labels, capacity and offerings.
//
// Place in the flow: a provider makes the types, the solver chooses among them. Values are immutable
// once handed out and may be shared between pools and solves. Pure.
package catalog
