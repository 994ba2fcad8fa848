package discovery

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

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
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Where there is a key, every text says where receipts are and how to check one;
// where there is none, nothing promises any.
func TestReceiptsInDocuments(t *testing.T) {
	t.Parallel()
	const at = `extensions["offer-receipt"].info.receipt`
	s := testSite()
	d := mustRender(t)
	chapter := sectionOf(t, parse(t, body(t, d, catalog.PathDocs)), "receipts")
	for _, want := range []string{at, receipt.Path, "#receipt-1", "responseHash", "@x402/extensions@"} {
		if !strings.Contains(textOf(chapter), want) {
			t.Errorf("the chapter does not say %q", want)
		}
	}
	for _, path := range []string{catalog.PathLLMs, catalog.PathLLMsFull} {
		for _, want := range []string{at, s.Origin + receipt.Path, s.Origin + "/docs#receipts"} {
			if !strings.Contains(string(body(t, d, path)), want) {
				t.Errorf("%s does not say %q", path, want)
			}
		}
	}
	s.ReceiptKeys = nil
	d = must(Render(s))
	chapter = sectionOf(t, parse(t, body(t, d, catalog.PathDocs)), "receipts")
	if text := textOf(chapter); !strings.Contains(text, "This service has no key for receipts") || strings.Contains(text, "@x402/extensions") {
		t.Errorf("without a key the chapter says %q", text)
	}
	for _, path := range []string{catalog.PathLLMs, catalog.PathLLMsFull} {
		if strings.Contains(string(body(t, d, path)), at) {
			t.Errorf("without a key %s says where receipts are", path)
		}
	}
	if _, ok := d.Find(receipt.Path); ok {
		t.Error("without a key there is a DID document")
	}
}
