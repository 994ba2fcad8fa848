package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestRunbookContext: the runbook has a row for each key of the CDK context, with
// its default.
func TestRunbookContext(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{} // key to default
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 {
			continue
		}
		for name := range strings.SplitSeq(cells[1], ",") {
			rows[strings.Trim(name, " `")] = strings.Trim(cells[3], " `")
		}
	}
	for key, fallback := range map[string]string{
		ctxStack: defaultStack, ctxDomain: "none", ctxCertificate: "none", ctxEmail: "none", ctxTickets: ctxEmail,
		ctxBudget: strconv.Itoa(defaultBudget), ctxRetention: strconv.Itoa(defaultRetention),
		ctxReserve: "true", ctxAssets: assetsBuild, ctxNodes: "required",
	} {
		if got, ok := rows[key]; !ok || got != fallback {
			t.Errorf("%s: the runbook says %q (%v), want %q", key, got, ok, fallback)
		}
	}
}
