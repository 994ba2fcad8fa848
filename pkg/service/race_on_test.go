//go:build race

package service_test

// raceDetector makes signatures fifteen times as slow, so the budget is counted
// over one environment with it; make test counts it without it, over two hundred
// as well.
const raceDetector = true
