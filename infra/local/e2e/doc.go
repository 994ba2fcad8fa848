// Package e2e holds the end-to-end suite of the service; all of it is tests.
//
// A few stories are played with two kinds of programs: the built local runner, and the built
// Lambda functions behind the gateway of cloud.Deployment with a DynamoDB-compatible server.
// What the handlers answer in every case, over HTTP and over the Model Context Protocol, is in
// the tests of pkg/service. Every answer is checked against the OpenAPI description, every
// receipt against the payment, and the facilitator against its books.
//
// A real chain with the reference facilitator, and crowds, are separate tables over the same
// programs. The local runner and the shop of infra/shop are killed in infra/clients, and
// functions are killed and frozen in infra/gameday, except for one that is killed here while its
// handler runs beyond its time.
package e2e
