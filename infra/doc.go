// Package infra tests that deployments and the operator's work match the template and the
// runbook; all of it is tests. They run the built functions, the SAM CLI on template.yaml, the
// commands of RUNBOOK.md, and the restoration of a ledger.
//
// The folders below are programs and suites. The CDK app for production is infra/cdk. It is a
// separate module, as are infra/deploy, infra/house, infra/paymcp and infra/shop, so that a
// program that imports this module does not need their dependencies.
package infra
