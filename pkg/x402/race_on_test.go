//go:build race

package x402_test

// raceDetector slows the campaign down some twenty times, so its schedules
// are fewer under it; make test runs all of them without it as well.
const raceDetector = true
