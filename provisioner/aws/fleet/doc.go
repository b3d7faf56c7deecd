// Package fleet launches instances: one CreateFleet call for each launch group, repeatable after a
// crash without launching twice.
//
// Place in the flow: the provider hands it a group of claims with the types and the class; it filters
// (Choose, pure), writes launch templates, calls EC2, notes shortages and maps instances to members.
package fleet
