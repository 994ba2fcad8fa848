// Package e2e holds the end-to-end suite of the service. It consists of tests only.
//
// A few scenarios run with two kinds of programs: the built local runner, and the built Lambda
// functions behind the gateway of cloud.Deployment with a DynamoDB-compatible server. The
// tests of pkg/service cover the handlers' answers in every case, over HTTP and over the Model
// Context Protocol. Here, every answer is checked against the OpenAPI description, every
// receipt against the payment, and the payments against the facilitator's books.
//
// Other tests run the same programs with a real chain and the reference facilitator, or with
// crowds of payments. Tests in infra/clients kill the local runner and the shop of infra/shop.
// Tests in infra/gameday kill and freeze functions. One test here kills a function whose handler
// runs too long.
package e2e
