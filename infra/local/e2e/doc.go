// Package e2e holds the end-to-end suite of the service; all of it is tests.
//
// One table of cases runs in three worlds: the handlers in this process, the
// built local runner as a process of its own, and the built Lambda functions
// behind the gateway of package lambdahost with a DynamoDB-compatible server.
// The facilitator and the DNS server are the suite's own, in this process, so
// that a case can choose what they do and count what they were asked. Nothing
// leaves the loopback interface.
//
// To add a case, add a line to one of the table_*_test.go files. Every answer
// of every case is held, by one function (check), to what package fault and
// the design say about its code; a line says only what is special about it.
//
// Processes that are killed, functions that are frozen, writes whose replies are
// lost, and crowds are tables of their own over the same worlds. A tap stands
// before the servers of a service and harms one kind of request; a proxy spoils
// the connections to them.
package e2e
