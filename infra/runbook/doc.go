// Package runbook tests infra/RUNBOOK.md and the work that operators do with it: its commands, the
// restore of a ledger, and the permissions of each role, all on an emulator of AWS. It has only
// tests.
package runbook
