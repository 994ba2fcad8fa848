// Package e2e holds the end-to-end suite of the service. It consists of tests only.
//
// A few scenarios run with two kinds of programs: the built local runner, and the built Lambda
// functions behind the gateway of cloud.Deployment with a DynamoDB-compatible server. The
// tests of pkg/service cover the handlers' answers in every case, over HTTP and over the Model
// Context Protocol. Here, every answer is checked against the OpenAPI description, every
// receipt against the payment, and the facilitator against its books.
//
// A real chain with the reference facilitator, and crowds, are separate tables over the same
// programs. Tests in infra/clients kill the local runner and the shop of infra/shop. Tests in
// infra/gameday kill and freeze functions. One function is killed here, while its handler runs
// beyond its time.
package e2e
