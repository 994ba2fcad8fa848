//go:build race

package e2e

// watched says whether this suite runs under the race detector.
const watched = true
