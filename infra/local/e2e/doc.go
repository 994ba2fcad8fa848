// Package e2e holds the end-to-end suite of the service; all of it is tests.
//
// One table of cases runs in two worlds: the built local runner as a separate process,
// and the built Lambda functions behind the gateway of package lambdahost with a
// DynamoDB-compatible server. What the handlers say, over HTTP and over the Model Context
// Protocol, is in the tests of pkg/service. The facilitator and the DNS server are the
// suite's own. To add a case, add a line to one of the table_*_test.go files. Every
// answer is held, by one function (judge), to what package fault and the design say about
// its code; a line says only what is special about it.
//
// Processes that are killed, functions that are frozen, a real chain with the reference
// facilitator, and crowds are separate tables over the same worlds. The shop of
// infra/shop, which is built as a stranger's module, is another subject of the first.
package e2e
