// Package runbook tests infra/RUNBOOK.md and what operators do by it: its commands, a ledger that is
// restored, and the permissions of each role, all on an emulator of AWS. All of it is tests.
package runbook
