package service_test

import (
	"fmt"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// TestResultsAreTheCatalogs ties every result type to the fields that the
// documents promise: names, order, JSON types, nullability.
func TestResultsAreTheCatalogs(t *testing.T) {
	for _, op := range every(t, nil) {
		entry := op.Entry()
		promised := catalog.Field{Type: "object", Fields: entry.Fields}
		if d := cmp.Diff(promises(promised, ""), encodes(op.Result(), "")); d != "" {
			t.Errorf("%s (-catalog +%s):\n%s", entry.Slug, op.Result(), d)
		}
		if code := op.Timeout(); code != fault.InternalError && !entry.Can(code) {
			t.Errorf("%s answers %s when it does not end in time, which the catalog does not list", entry.Slug, code)
		}
	}
}

// promises is what the catalog says of a field, a line for each value in it.
func promises(f catalog.Field, path string) []string {
	if f.Nullable {
		path += " or null"
	}
	lines := []string{path + " " + f.Type}
	for i, shape := range f.Items {
		if f.Type == "object" && i == 1 && shape.Fields[0].Name == "error" {
			lines = append(lines, path+" or an error")
			continue
		}
		lines = append(lines, promises(shape, path+" | ")...)
	}
	for _, member := range f.Fields {
		lines = append(lines, promises(member, path+"."+member.Name)...)
	}
	return lines
}

// encodes is the same of a type, as encoding/json writes it. Only a pointer can be
// null: slices are never nil here, which the end-to-end suite sees to. A field that
// can be left out shows in its tag.
func encodes(t reflect.Type, path string) []string {
	if t.Kind() == reflect.Pointer {
		path, t = path+" or null", t.Elem()
	}
	switch {
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return []string{path + " integer"}
	case t.Kind() == reflect.Bool:
		return []string{path + " boolean"}
	case t.Kind() == reflect.Slice:
		lines := []string{path + " array"}
		items := []reflect.Type{t.Elem()}
		if t.Elem() == reflect.TypeFor[dns.Record]() { // in the order of the catalog's shapes
			items = nil
			for _, r := range []dns.Record{dns.Address{}, dns.MX{}, dns.TXT{}, dns.Target{}, dns.SOA{}} {
				items = append(items, reflect.TypeOf(r))
			}
		}
		for _, item := range items {
			lines = append(lines, encodes(item, path+" | ")...)
		}
		return lines
	case strings.HasPrefix(t.Name(), "Child["): // the error object of spec §2.8 is tested in package bundle
		result, _ := t.FieldByName("Result")
		return slices.Concat([]string{path + " object"}, encodes(result.Type, path+" | "), []string{path + " or an error"})
	case t.Kind() == reflect.Struct:
		lines := []string{path + " object"}
		for i := range t.NumField() {
			lines = append(lines, encodes(t.Field(i).Type, path+"."+t.Field(i).Tag.Get("json"))...)
		}
		return lines
	}
	return []string{path + " " + t.Kind().String()}
}

// The README says what the ledger does.
func TestReadmeSaysWhatTheLedgerDoes(t *testing.T) {
	text := strings.Join(strings.Fields(string(must(os.ReadFile("../../README.md")))), " ")
	var waits []string
	for n := 1; n < ledger.MaxLookups; n++ {
		waits = append(waits, fmt.Sprint(int(ledger.NextLookup(ledger.Record{Lookups: n}).Seconds())))
	}
	last := len(waits) - 1
	for _, want := range []string{
		fmt.Sprintf("up to %d in all within %d hours, at least %s and %s seconds apart",
			ledger.MaxLookups, int(ledger.OwedFor.Hours()), strings.Join(waits[:last], ", "), waits[last]),
		fmt.Sprintf("returns the stored answer for %d hours", int(ledger.KeptFor.Hours())),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("README.md does not say %q", want)
		}
	}
}

// What the catalog lists beside the result types is what the lookups can say.
func TestListsAreTheLookups(t *testing.T) {
	var reasons, types []string
	for _, r := range redirect.StopReasons() {
		reasons = append(reasons, string(r))
	}
	for _, kind := range append(catalog.RecordTypes(), "SRV", "PTR", "ANY", "CAA") {
		if got, err := dns.TypeParam(url.Values{"type": {kind}}, "type"); err == nil {
			types = append(types, got)
		}
	}
	if d := cmp.Diff([][]string{catalog.StopReasons(), catalog.RecordTypes()}, [][]string{reasons, types}); d != "" {
		t.Errorf("stop reasons and record types (-catalog +lookups):\n%s", d)
	}
}
