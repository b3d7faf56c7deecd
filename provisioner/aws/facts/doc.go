// Package facts holds what is publicly known about EC2: instance types, the
// zones that offer them, on-demand prices, and a rule for simulated spot prices.
//
// It is data and a decoder, nothing else: it imports no other package of this
// module and makes no call. Its place in the flow is at the bottom: the EC2
// simulator serves these facts over the wire, pricing falls back to them when
// AWS cannot be asked, and the command line prints them.
//
// The data is one gzipped table, catalogue.tsv.gz, embedded in the binary and
// decoded once at first use. `zcat catalogue.tsv.gz` shows it; gen makes it anew.
// List prices go stale: they are a fallback and an estimate, never a bill.
package facts

//go:generate go run ./gen -data ../../../../shared/data -out catalogue.tsv.gz
