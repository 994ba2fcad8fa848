package boot

import "runtime/debug"

// collectAt is how much the heap grows between two garbage collections, in percent
// of what is in use.
const collectAt = 400

// relaxCollector lets a function's heap grow to some 20 MB before garbage is
// collected. A function serves one request at a time and holds some 4 MB, so that with
// Go's 100 percent the collector runs several times while it starts, which takes a
// sixth of the processor time until its first answer. GOGC overrides it.
//
// The local runner serves many requests at once and holds more, of which this would
// be a multiple.
func relaxCollector(getenv func(string) string) {
	if getenv(varCollector) == "" {
		debug.SetGCPercent(collectAt)
	}
}
