//go:build race

package x402_test

// raceDetector slows the campaign down twenty times; make test runs it without, too.
const raceDetector = true
