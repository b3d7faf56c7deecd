// Package pace keeps calls to EC2 within the rates that EC2 documents, so that a burst of launches
// waits its turn here instead of being refused there.
//
// Place in the flow: a middleware of the EC2 client that the provider makes.
package pace
