// Package clients lets programs of others use the service and pay for it: the programs
// of the documentation page, as they are shown, and unmodified clients of the x402
// project and of the Model Context Protocol. It is tests and nothing else.
//
// It starts the whole service, reads the page that it serves, saves each program
// under the name that the page gives it, and runs the command that the page says. It
// makes clients of llms.txt alone (TestLLMsProgramsPay) and, with two public
// generators, of the OpenAPI description (TestGeneratedClients), and has them pay. The
// unmodified @x402/extensions judges the receipts of live answers
// (TestReceiptsByTheStockPackage).
//
// Loops around the unmodified clients of the x402 project, in testdata/stock, run
// against a facilitator that fails after it has settled, a proxy that loses answers,
// and kill -9 (TestStockClients).
//
// The clients of the TypeScript, Python and Go SDKs of the Model Context Protocol, the
// x402 project's MCP session, the inspector and the official conformance suite, in
// testdata/mcp, meet the local runner, and the built functions behind the Lambda host.
//
// It needs Node, Python and the packages that package.json and testdata/requirements.txt
// pin. A test that lacks one is skipped by name.
package clients
