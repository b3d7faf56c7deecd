// Package pricing knows what instance types cost: from the Pricing API and the spot price history, and
// from the embedded list until those have answered.
//
// Place in the flow: types puts the prices on offerings.
package pricing
