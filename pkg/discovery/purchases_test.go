package discovery

import (
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestWindowOfOperations checks the duplicate windows of the operations. The smoke test has
// none, because it charges every payment that has no key. Every other operation has the Site's
// window. The challenge of an operation must state that operation's window. The tool catalog
// states the Site's window for all operations, and must override it only for the smoke test.
// The hints readOnlyHint and idempotentHint of a tool must be false for the smoke test and
// true for every other operation.
func TestWindowOfOperations(t *testing.T) {
	s := testSite()
	listed := decode[struct {
		Tools []struct {
			Window *int `json:"duplicate_window_seconds"`
		}
	}](documentBody(t, New(s), catalog.PathCatalog)).Tools
	tools := decode[[]struct {
		Annotations struct{ ReadOnlyHint, IdempotentHint bool }
	}](Tools(s))
	if n := len(catalog.All()); len(listed) != n || len(tools) != n {
		t.Fatalf("the tool catalog has %d operations, MCP %d, and the service %d: make update writes assets/generated/catalog.json", len(listed), len(tools), n)
	}
	for i, op := range catalog.All() {
		want, smoke := 45, op.Kind == catalog.SmokeTest
		if smoke {
			want = 0
		}
		challenge := ChallengeOf(op, s, Offer(op, s), fault.New(fault.PaymentRequired, nil))
		wantEqual(t, op.Slug+": the offer", want, challenge.Idempotency.DuplicateWindowSeconds)
		wantEqual(t, op.Slug+": the catalog has its own", smoke, listed[i].Window != nil && *listed[i].Window == 0)
		wantEqual(t, op.Slug+": readOnlyHint", !smoke, tools[i].Annotations.ReadOnlyHint)
		wantEqual(t, op.Slug+": idempotentHint", !smoke, tools[i].Annotations.IdempotentHint)
	}
}

// TestAdviceOnPurchases checks that llms.txt and the tool instructions give the right advice.
// They must say that a key names a purchase, and must not say that it names a question. They
// must say that a client repeats a payment after a retryable error, and must not say that it
// does so after every error.
func TestAdviceOnPurchases(t *testing.T) {
	llms, instructions := string(documentBody(t, testDocuments(), catalog.PathLLMs)), ToolInstructions(testSite())
	wantTexts(t, catalog.PathLLMs, llms, "Give each purchase its own key", "After a `retryable` error",
		"repeating a payment tells only whether it was charged; for the answer, sign again with the same key, which is free")
	wantTexts(t, "instructions", instructions, "each purchase its own key", "when an error says retryable")
	for _, part := range []string{"each question", "error without `accepts`", "never asks for a new one"} {
		if strings.Contains(llms+instructions, part) {
			t.Errorf("a document says %q", part)
		}
	}
}
