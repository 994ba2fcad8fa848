// Package agents lets unmodified clients of the Model Context Protocol use the
// tools of the service and pay for them: the clients of the TypeScript, Python and
// Go SDKs, the x402 project's MCP session, the inspector and the official
// conformance suite. They meet the local runner, and the built functions behind
// the Lambda host.
//
// It needs Node, Python and the packages that package.json and
// testdata/python/requirements.txt pin. A test that lacks one is skipped by name.
package agents
