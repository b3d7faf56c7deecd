// Package hack holds scripts for people who change Berth, and the test of the import order.
package hack
