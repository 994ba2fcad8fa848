package service_test

import (
	"fmt"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// variants are the types behind an interface, in the order of the catalog's
// shapes.
func variants() map[reflect.Type][]reflect.Type {
	return map[reflect.Type][]reflect.Type{
		reflect.TypeFor[dns.Record](): {
			reflect.TypeFor[dns.Address](), reflect.TypeFor[dns.MX](), reflect.TypeFor[dns.TXT](),
			reflect.TypeFor[dns.Target](), reflect.TypeFor[dns.SOA](),
		},
	}
}

// TestResultsAreTheCatalogs ties every result type to the fields that the
// documents promise: names, order, JSON types, nullability.
func TestResultsAreTheCatalogs(t *testing.T) {
	t.Parallel()
	for _, op := range every(t, nil) {
		if err := sameFields(op.Result(), op.Entry().Fields); err != nil {
			t.Errorf("%s: %s and the catalog differ: %v", op.Entry().Slug, op.Result(), err)
		}
		if code := op.Timeout(); code != fault.InternalError && !op.Entry().Can(code) {
			t.Errorf("%s answers %s when it does not end in time, which the catalog does not list", op.Entry().Slug, code)
		}
	}
}

// sameFields compares a struct with the fields of an object.
func sameFields(t reflect.Type, fields []catalog.Field) error {
	if t.Kind() != reflect.Struct {
		return fmt.Errorf("%s is not a struct", t)
	}
	var names []string
	for _, f := range fields {
		names = append(names, f.Name)
	}
	var tags []string
	for i := range t.NumField() {
		tag, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if !t.Field(i).IsExported() || tag == "" || tag == "-" || options != "" {
			// A field that can be left out would not always be present.
			return fmt.Errorf("%s: tag %q", t.Field(i).Name, t.Field(i).Tag)
		}
		tags = append(tags, tag)
	}
	if !slices.Equal(tags, names) {
		return fmt.Errorf("fields %v, the catalog has %v", tags, names)
	}
	for i, f := range fields {
		if err := sameType(t.Field(i).Type, f); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return nil
}

// sameType compares a Go type with a field. Only a pointer can be null: slices
// are never nil here, which the end-to-end suite sees to.
func sameType(t reflect.Type, f catalog.Field) error {
	if nullable := t.Kind() == reflect.Pointer; nullable != f.Nullable {
		return fmt.Errorf("%s, nullable in the catalog: %v", t, f.Nullable)
	} else if nullable {
		t = t.Elem()
	}
	if got := jsonType(t.Kind()); got != f.Type {
		return fmt.Errorf("%s is %s in JSON, the catalog says %s", t, got, f.Type)
	}
	switch f.Type {
	case "object":
		if len(f.Items) > 0 {
			return sameChild(t, f.Items)
		}
		return sameFields(t, f.Fields)
	case "array":
		return sameItems(t.Elem(), f.Items)
	}
	return nil
}

// sameChild compares a child of a bundle: its result, and the error object of
// spec §2.8, which package bundle tests.
func sameChild(t reflect.Type, shapes []catalog.Field) error {
	result, ok := t.FieldByName("Result")
	if !ok || !strings.HasPrefix(t.Name(), "Child[") || len(shapes) != 2 || shapes[1].Fields[0].Name != "error" {
		return fmt.Errorf("%s is not a child of a bundle", t)
	}
	return sameFields(result.Type, shapes[0].Fields)
}

func sameItems(t reflect.Type, shapes []catalog.Field) error {
	types := []reflect.Type{t}
	if t.Kind() == reflect.Interface {
		types = variants()[t]
	}
	if len(types) != len(shapes) {
		return fmt.Errorf("%d types of item, %d shapes in the catalog", len(types), len(shapes))
	}
	for i, shape := range shapes {
		if t.Kind() == reflect.Interface && !types[i].Implements(t) {
			return fmt.Errorf("%s is no %s", types[i], t)
		}
		if err := sameType(types[i], shape); err != nil {
			return fmt.Errorf("%s: %w", shape.Name, err)
		}
	}
	return nil
}

// jsonType is what encoding/json makes of a kind.
func jsonType(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer"
	case reflect.Struct:
		return "object"
	case reflect.Slice:
		return "array"
	}
	return k.String()
}

// The README says what the ledger does.
func TestReadmeSaysWhatTheLedgerDoes(t *testing.T) {
	t.Parallel()
	readme := must(os.ReadFile("../../README.md"))
	text := strings.Join(strings.Fields(string(readme)), " ")
	var waits []string
	for n := 1; n < ledger.MaxLookups; n++ {
		waits = append(waits, fmt.Sprint(int(ledger.NextLookup(ledger.Record{Lookups: n}).Seconds())))
	}
	last := len(waits) - 1
	hours := int(ledger.OwedFor.Hours())
	for _, want := range []string{
		fmt.Sprintf("up to %d in all within %d hours, at least %s and %s seconds apart", ledger.MaxLookups, hours, strings.Join(waits[:last], ", "), waits[last]),
		fmt.Sprintf("returns the stored answer for %d hours", int(ledger.KeptFor.Hours())),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("README.md does not say %q", want)
		}
	}
}

// What the catalog lists beside the result types is what the lookups can say.
func TestListsAreTheLookups(t *testing.T) {
	t.Parallel()
	var reasons []string
	for _, r := range redirect.StopReasons() {
		reasons = append(reasons, string(r))
	}
	if want := catalog.StopReasons(); !slices.Equal(reasons, want) {
		t.Errorf("stop reasons %v, the catalog has %v", reasons, want)
	}
	for _, kind := range catalog.RecordTypes() {
		if got, err := dns.TypeParam(url.Values{"type": {kind}}, "type"); err != nil || got != kind {
			t.Errorf("record type %s: %s, %v", kind, got, err)
		}
	}
	for _, kind := range []string{"SRV", "PTR", "ANY", "CAA"} {
		if _, err := dns.TypeParam(url.Values{"type": {kind}}, "type"); err == nil {
			t.Errorf("record type %s is taken and not in the catalog", kind)
		}
	}
}
