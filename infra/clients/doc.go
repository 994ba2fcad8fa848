// Package clients tests the service with third-party programs that use it or that check its
// documents. The type OpenAPI, which other suites also use, compares live answers with the
// OpenAPI description: the status, the headers, the content type, the whole body, and the error
// code, which the operation must list. The rest of the package is tests:
//
//   - The programs on the page /docs, which llms.txt repeats. For each program, a test runs the
//     printed installation in an empty folder, saves the program under the printed name, and
//     runs it with the printed command. The registries of npm, Python and Go are on this machine
//     and have the versions that the repository pins. With the flag -registries, tests use the
//     public registries.
//   - Clients that generators make from the OpenAPI document, for TypeScript, Python and Go.
//   - Loops around the unmodified clients of the x402 project (testdata/stock). The clients sign
//     again on every call. In these tests the facilitator fails after it has settled, the
//     seller's handler fails for a while, answers are lost, and the service is killed with
//     kill -9. Some clients give up and come back later, and some post JSON and forms. The tests
//     check the table of the results in charged.md.
//   - The clients of the SDKs of the Model Context Protocol (testdata/mcp).
//   - The unmodified @x402/extensions, which checks receipts; public validators of OpenAPI, JSON
//     Schema and HTML; the reader that x402scan is built on; and a tokenizer, which counts the
//     tokens of documents for models.
//   - Chromium, driven by the scripts in testdata/browser, with a wallet that really signs.
//
// The loops, the programs and the MCP clients also run against the shop of infra/shop. A gateway
// between clients and service can lose, delay or replace answers. The tests need Chromium, Node,
// Python, and the packages that package.json and testdata/requirements.txt pin. A test is skipped
// if one of these is missing, and says which.
package clients
