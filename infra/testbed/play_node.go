package testbed

import "github.com/hostfacts/hostfacts/pkg/x402/x402test"

// PlayNode is a simulated node of the chain on which play money moves. The operator's tools and
// the game day use it where there is no real chain.
type PlayNode = x402test.Node
