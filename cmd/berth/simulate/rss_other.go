//go:build !linux

package simulate

// rssUnit is what getrusage counts peak memory in: bytes.
const rssUnit = 1
