// Package mcp speaks the Model Context Protocol over HTTP, tools only: one JSON
// message in, one JSON message out, without sessions and without streams.
//
// Two eras of the protocol are served on one path. Since revision 2026-07-28
// every request carries its version in _meta, and headers repeat what stands in
// the body; earlier revisions begin with initialize. Nothing is remembered
// between two requests in either.
//
// The package knows the protocol and how x402 puts payments into it
// (x402 specification, transports v2, MCP: the tool-result binding). What the
// tools do and what they cost is its caller's affair.
package mcp
