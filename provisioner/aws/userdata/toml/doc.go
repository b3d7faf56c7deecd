// Package toml reads and writes the TOML of Bottlerocket's settings.
//
// Place in the flow: userdata merges the user's settings with the generated ones. Numbers and dates are
// kept as they were written. Pure.
package toml
