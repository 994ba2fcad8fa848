// Package browser tests the pages that people see: the paywall, which pays with
// a wallet, and the documentation. Chromium is driven by the Node scripts
// beside it, with a wallet that really signs; behind the pages is the built
// local runner, with play money and a DNS server of the test's own, and between
// the two a proxy that can lose, delay or replace answers.
//
// It is tests and nothing else, see infra/local/e2e.
package browser
