// Package clients has the programs of others use the service, or judge what it
// publishes: the unmodified clients of the x402 project and of the Model Context
// Protocol, clients that generators make of the OpenAPI document, curl, a browser, and
// the validators of each document.
//
// OpenAPI holds live answers to the description: the status, the headers, the content
// type and every byte of the body, and the error code against the list of the
// operation. Other suites use it, too; the rest of the package is tests.
//
// They start the whole service, read the page that it serves, save each program under
// the name that the page gives it, and run the command that the page says. They make
// clients of llms.txt alone (TestLLMsProgramsPay) and, with two public generators, of
// the OpenAPI description (TestGeneratedClients), and have them pay. The unmodified
// @x402/extensions judges the receipts of live answers (TestReceiptsByTheStockPackage).
// Public validators of OpenAPI, JSON Schema, HTML, robots.txt, and the reader that
// x402scan is built on, judge the documents (TestDocuments, testdata/validators).
//
// Loops around the unmodified clients of the x402 project, in testdata/stock, run
// against a facilitator that fails after it has settled, a proxy that loses answers,
// and kill -9 (TestStockClients), and against a reply that never arrives
// (TestSwallowedReply).
//
// The clients of the TypeScript, Python and Go SDKs of the Model Context Protocol and the
// x402 project's MCP session, in testdata/mcp, meet the local runner, and the built
// functions behind the Lambda host.
//
// The shop of infra/shop is another subject of the loops, of the programs of the page, and
// of the clients of the Model Context Protocol.
//
// Chromium, driven by the scripts in testdata/browser with a wallet that really signs,
// shows the pages that people see: the paywall, which pays, and the documentation
// (TestBrowser). Between it and the service, as between several of the others, stands a
// gateway that can lose, delay or replace answers.
//
// They need Chromium, Node, Python and the packages that package.json and
// testdata/requirements.txt pin. A test that lacks one is skipped by name.
package clients
