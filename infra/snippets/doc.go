// Package snippets runs the programs of the documentation page as they are
// shown: it starts the whole service, reads the page that it serves, saves each
// program under the name that the page gives it, and runs the command that the
// page says.
//
// It makes clients of llms.txt alone (TestLLMsProgramsPay) and, with two public
// generators, of the OpenAPI description (TestGeneratedClients), and has them pay.
//
// It also runs loops around the unmodified clients of the x402 project, in
// testdata/stock, against a facilitator that fails after it has settled, a proxy
// that loses answers, and kill -9 (TestStockClients), and has the
// unmodified @x402/extensions judge the receipts of live answers
// (TestReceiptsByTheStockPackage). There is nothing here but tests.
package snippets
