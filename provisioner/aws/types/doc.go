// Package types turns what EC2 tells about its instance types into what can be bought for a class:
// labels, capacity, overhead, offerings with prices, and which of them are out of stock.
//
// Place in the flow: Catalog asks EC2 twice a day and answers every solve and launch; fleet reports
// shortages to Unavailable. The conversion itself (Convert, Offerings) is pure.
package types
