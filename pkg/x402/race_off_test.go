//go:build !race

package x402_test

const raceDetector = false
