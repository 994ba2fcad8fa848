package discovery

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// TestDocumentsSay: what each document must say, and what it must not. Marks of
// code do not count.
func TestDocumentsSay(t *testing.T) {
	const (
		docs, llms, full  = catalog.PathDocs, catalog.PathLLMs, catalog.PathLLMsFull
		openAPI, manifest = catalog.PathOpenAPI, catalog.PathManifest
		receipts          = `extensions["offer-receipt"].info.receipt`
	)
	s := testSite()
	keyless := s
	keyless.ReceiptKeys = nil
	wide, without := renderedWide(), must(Render(keyless))
	for _, c := range []struct {
		what  string
		d     *Documents
		paths []string
		says  []string
		not   []string
	}{
		{"how to pay", wide, []string{llms, full},
			[]string{"PAYMENT-REQUIRED", "PAYMENT-SIGNATURE", "PAYMENT-RESPONSE", "Base (eip155:8453)", "untrusted data"}, nil},
		{"what is charged", wide, []string{llms}, []string{
			"- charged yes, retryable no: " + listOf(fault.Answer, true), "- charged yes, answer owed, retryable yes: " + listOf(fault.Owed, true),
		}, nil},
		{"what is charged, in full", wide, []string{full}, []string{
			"uses up the payment: 200, and also " + listOf(fault.Answer, false), "not an answer: " + listOf(fault.Owed, false),
		}, nil},
		{"limits and caveats", wide, []string{docs}, notes(), nil},
		{"refunds", wide, []string{docs + "#refunds", full}, refunds(), nil},

		// What a purchase is, what a second signature costs and how to ask anew.
		{"purchases, briefly", wide, []string{manifest, llms}, []string{"one purchase and at most one charge"}, nil},
		{"asking anew", wide, []string{manifest}, []string{"A new key asks anew"}, nil},
		{"asking anew, with a key", wide, []string{llms}, []string{"A new key asks anew"}, nil},
		{"purchases", wide, []string{llms, full, docs, openAPI}, []string{
			"the payer and the key, for 24 hours", "for 45 seconds after the answer", "idempotency_conflict", "invalid_idempotency_key",
			"charges each payment without a key", "Answer-Owed",
		}, []string{"Signing anew", "a second payment", "payment_identifier_conflict"}},
		{"second signatures", wide, []string{full, docs, openAPI}, []string{
			"a second signature for it costs nothing", "To ask anew at once, send a new Idempotency-Key",
		}, nil},
		{"all about purchases", wide, []string{full, docs}, []string{
			"a fresh id is a fresh purchase", "retry-token", "from the chain gets 402, and no answer, receipt or lookup",
			"Answer-Owed: ssl, headers", "A contract wallet",
		}, nil},

		// Where there is a key, every text says where receipts are and how to check
		// one; where there is none, nothing promises any.
		{"receipts", wide, []string{docs + "#receipts"}, []string{receipts, receipt.Path, "#receipt-1", "responseHash", "@x402/extensions@"}, nil},
		{"receipts, in texts", wide, []string{llms, full}, []string{receipts, s.Origin + receipt.Path, s.Origin + "/docs#receipts"}, nil},
		{"no receipts", without, []string{docs + "#receipts"}, []string{"This service has no key for receipts"}, []string{"@x402/extensions"}},
		{"no receipts, in texts", without, []string{llms, full}, nil, []string{receipts}},

		{"an error of its own", wide, []string{docs}, []string{"/docs#error-nxdomain"}, nil},
	} {
		for _, path := range c.paths {
			said := text(t, c.d, path)
			for _, want := range c.says {
				says(t, c.what+": "+path, said, strings.ReplaceAll(want, "`", ""))
			}
			for _, gone := range c.not {
				if strings.Contains(said, gone) {
					t.Errorf("%s: %s says %q", c.what, path, gone)
				}
			}
		}
	}
	if _, ok := without.Find(receipt.Path); ok {
		t.Error("without a key there is a DID document")
	}
}

// notes are the limits and caveats of the catalog.
func notes() []string {
	var all []string
	for _, n := range append(catalog.Limits(testSite().Caps), catalog.Caveats()...) {
		all = append(all, n.Title, n.Text)
	}
	return all
}

// listOf are the codes of a class that operations answer, with or without their
// status, in the spec's order.
func listOf(class fault.Class, status bool) string {
	var codes []string
	for _, i := range fault.All() {
		switch {
		case i.Class != class || i.Code == fault.InternalError:
		case status:
			codes = append(codes, fmt.Sprint(i.Code, " ", i.Status))
		default:
			codes = append(codes, string(i.Code))
		}
	}
	return strings.Join(codes, ", ")
}

// The page lists the members that a receipt has.
func TestReceiptRows(t *testing.T) {
	t.Parallel()
	var want, got []string
	for f := range reflect.TypeFor[receipt.Statement]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		want = append(want, name)
	}
	for _, r := range receiptRows() {
		got = append(got, r.Name)
	}
	slices.Sort(want)
	slices.Sort(got)
	same(t, t.Name(), want, got)
}
