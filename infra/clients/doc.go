// Package clients tests the service with third-party programs, which use it or check what it
// publishes. OpenAPI, which other suites also use, checks live answers against the description:
// the status, the headers, the content type, every byte of the body, and the error code, which
// the operation must list. The rest of the package is tests:
//
//   - the programs of /docs, and by that those of llms.txt. In an empty folder each is
//     installed by the command that is printed, saved under the name that is printed and run
//     by the command that is printed. The registries of npm, Python and Go are on this
//     machine, and have what the repository pins; -registries asks those that readers have;
//   - clients that generators make of the OpenAPI document, for TypeScript, Python and Go;
//   - loops around the unmodified clients of the x402 project (testdata/stock), which sign
//     again on every call, against a facilitator that fails after it has settled, what is sold
//     failing for a while, lost answers and kill -9; some give up and come back later, and some
//     post JSON and forms. charged.md has their table, which the tests hold;
//   - the clients of the SDKs of the Model Context Protocol (testdata/mcp);
//   - the unmodified @x402/extensions, which judges receipts, and public validators of
//     OpenAPI, JSON Schema, HTML, the reader that x402scan is built on, and a tokenizer, which
//     counts what models read;
//   - Chromium, driven by the scripts in testdata/browser with a wallet that really signs.
//
// The loops, the programs and the MCP clients also run against the shop of infra/shop. A gateway
// between clients and service can lose, delay or replace answers. The tests need Chromium, Node,
// Python and the packages that package.json and testdata/requirements.txt pin. A test that lacks
// one is skipped by name.
package clients
