package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// shaped says whether a JSON object has exactly the fields of the catalog:
// names, types, nullability, nothing missing and nothing more.
func shaped(raw []byte, fields []catalog.Field) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	return object(v, fields)
}

func object(v any, fields []catalog.Field) error {
	o, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%T is not an object", v)
	}
	for _, f := range fields {
		x, ok := o[f.Name]
		if !ok {
			return fmt.Errorf("%s is missing", f.Name)
		}
		if err := field(x, f); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	for name := range o {
		if !slices.ContainsFunc(fields, func(f catalog.Field) bool { return f.Name == name }) {
			return fmt.Errorf("%s is not in the catalog", name)
		}
	}
	return nil
}

func field(v any, f catalog.Field) error {
	ok := true
	switch x := v.(type) {
	case nil:
		ok = f.Nullable
	case string:
		ok = f.Type == "string" && (len(f.Enum) == 0 || slices.Contains(f.Enum, x))
	case float64:
		ok = f.Type == "integer" && x == math.Trunc(x)
	case bool:
		ok = f.Type == "boolean"
	case []any:
		if f.Type == "array" {
			return array(x, f.Items)
		}
		ok = false
	case map[string]any:
		switch {
		case f.Type != "object":
			ok = false
		case len(f.Items) > 0: // a child of a bundle: one of several shapes
			return array([]any{x}, f.Items)
		default:
			return object(x, f.Fields)
		}
	}
	if !ok {
		return fmt.Errorf("%v is no %s", v, f.Type)
	}
	return nil
}

// array takes items of one of the shapes, the same for all of them.
func array(items []any, shapes []catalog.Field) error {
	var faults []error
	for _, shape := range shapes {
		var err error
		for i, item := range items {
			if err = field(item, shape); err != nil {
				faults = append(faults, fmt.Errorf("item %d as %s: %w", i, shape.Name, err))
				break
			}
		}
		if err == nil {
			return nil
		}
	}
	return errors.Join(faults...)
}

// The measure itself must be able to fail.
func TestShaped(t *testing.T) {
	t.Parallel()
	dns, ping := catalog.DNS().Fields, catalog.Ping().Fields
	for _, op := range catalog.All() {
		if err := shaped([]byte(op.Response), op.Fields); err != nil {
			t.Errorf("%s: the catalog's own example: %v", op.Slug, err)
		}
	}
	const head = `{"domain":"a.com","type":"A","rcode":"NOERROR","resolver":"1.1.1.1",`
	for body, fields := range map[string][]catalog.Field{
		`{"ok":true}`:                            ping,
		`{"ok":"true","service":"x"}`:            ping,
		`{"ok":true,"service":null}`:             ping,
		`{"ok":true,"service":"x","extra":1}`:    ping,
		`[]`:                                     ping,
		head + `"ttl":1.5,"records":[]}`:         dns,
		head + `"ttl":null,"records":null}`:      dns,
		head + `"ttl":null,"records":[{"a":1}]}`: dns,
		head + `"ttl":null,"records":[{"address":"1.2.3.4"},{"target":"a"}]}`:       dns,
		strings.Replace(head, `"A"`, `"PTR"`, 1) + `"ttl":null,"records":[]}`:       dns,
		head + `"ttl":1,"records":[{"preference":1,"exchange":"a","priority":1}]}`:  dns,
		head + `"ttl":1,"records":[{"text":"a","strings":["a",1]}]}`:                dns,
		head + `"ttl":1,"records":[{"text":"a","strings":"a"}]}`:                    dns,
		head + `"ttl":"1","records":[{"mname":"a","rname":"b","serial":"123456"}]}`: dns,
	} {
		if shaped([]byte(body), fields) == nil {
			t.Errorf("%s passes", body)
		}
	}
}
