package testbed

import "github.com/hostfacts/hostfacts/pkg/x402/x402test"

// PlayNode simulates a node of the chain on which play money moves. The tests of the
// operator's tools and of the game day use it, because play money has no real chain.
type PlayNode = x402test.Node
