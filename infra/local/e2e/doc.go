// Package e2e holds the end-to-end suite of the service; all of it is tests.
//
// One table of cases runs in three worlds: the handlers in this process, the
// built local runner as a process of its own, and the built Lambda functions
// behind the gateway of package lambdahost with a DynamoDB-compatible server.
// The facilitator and the DNS server are the suite's own. To add a case, add a line to
// one of the table_*_test.go files. Every answer is held, by one function (check), to
// what package fault and the design say about its code; a line says only what is special
// about it.
//
// Processes that are killed, functions that are frozen, writes whose replies are
// lost, and crowds are tables of their own over the same worlds.
package e2e
