package simulate

// rssUnit is what getrusage counts peak memory in: KiB.
const rssUnit = 1024
