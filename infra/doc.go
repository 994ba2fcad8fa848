// Package infra holds what is deployed, and what the operator does with it, to what the
// template and the runbook say; all of it is tests. They run the built functions, the SAM
// CLI on template.yaml, the commands of RUNBOOK.md, and the restoration of a ledger.
//
// The folders below are programs and suites. The CDK app for production is infra/cdk, and
// a separate module, as infra/deploy, infra/house, infra/paymcp and infra/shop are: nobody
// who imports this module needs theirs.
package infra
