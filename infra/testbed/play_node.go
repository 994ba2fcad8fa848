package testbed

import "github.com/hostfacts/hostfacts/pkg/x402/x402test"

// PlayNode is a node of the chain that play money moves on. It lets the operator's tools and
// the game day see the chain where there is none.
type PlayNode = x402test.Node
