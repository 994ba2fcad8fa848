package simnet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/openapicheck"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// observed is what the answers have shown so far.
type observed struct {
	mu sync.Mutex
	// codes by operation, stop reasons, verdicts, child errors, and fields that
	// were null or not, each as one text.
	facts map[string]bool
	// api is the description that every answer is held to.
	api *openapicheck.Document
}

func (o *observed) note(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.facts[fmt.Sprintf(format, args...)] = true
}

func (o *observed) saw(format string, args ...any) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.facts[fmt.Sprintf(format, args...)]
}

// check holds an answer to its row, to the catalog and to package fault.
func (o *observed) check(t *testing.T, op catalog.Operation, r row, reply x402test.Reply) {
	t.Helper()
	o.described(t, op, reply)
	var body any
	if err := json.Unmarshal(reply.Body, &body); err != nil {
		t.Fatalf("%d: not JSON: %v: %.300s", reply.Status, err, reply.Body)
	}
	info, failed := fault.Of(r.code)
	want := 200
	if failed {
		want = info.Status
	}
	if reply.Status != want {
		t.Fatalf("status %d, want %d %s: %.500s", reply.Status, want, r.code, reply.Body)
	}
	receipt, err := reply.Receipt()
	// Every row is a payment of its own, so Either is before the settlement.
	if paid := !failed || info.Class == fault.Answer || info.Class == fault.Owed; paid != (err == nil && receipt.Success) && r.code != fault.Overloaded {
		t.Errorf("receipt %+v (%v) on %d %s", receipt, err, reply.Status, r.code)
	}
	if failed {
		checkFault(t, info, body)
		o.note("%s answered %s", op.Slug, r.code)
	} else {
		o.shape(t, op.Slug, body, op.Fields)
		o.note("%s answered", op.Slug)
	}
	for _, path := range slices.Sorted(maps.Keys(r.want)) {
		got, err := at(body, path)
		if err != nil {
			t.Errorf("%v: %.700s", err, reply.Body)
		} else if !same(got, r.want[path]) {
			t.Errorf("%s is %#v, want %#v: %.700s", path, got, r.want[path], reply.Body)
		}
	}
}

func checkFault(t *testing.T, info fault.Info, body any) {
	t.Helper()
	for path, want := range map[string]any{"error.code": string(info.Code), "error.retryable": info.Retry, "error.message": something} {
		if got, err := at(body, path); err != nil || !same(got, want) {
			t.Errorf("%s is %#v (%v), want %#v", path, got, err, want)
		}
	}
	charged, err := at(body, "error.charged")
	if want := info.Class == fault.Answer || info.Class == fault.Owed; err != nil || charged != want {
		t.Errorf("error.charged is %v (%v), want %v", charged, err, want)
	}
}

// marker is a wanted value that stands for several.
type marker string

const (
	something marker = "something" // neither null nor empty
	none      marker = "null"
)

// starts is a wanted text by its beginning, listing an array by its texts and
// count an array by its length.
type (
	starts  string
	listing []string
	count   int
)

func same(got, want any) bool {
	switch want := want.(type) {
	case marker:
		if want == none {
			return got == nil
		}
		return got != nil && got != ""
	case starts:
		s, ok := got.(string)
		return ok && strings.HasPrefix(s, string(want))
	case listing:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return false
		}
		for i := range list {
			if list[i] != want[i] {
				return false
			}
		}
		return true
	case count:
		list, ok := got.([]any)
		return ok && len(list) == int(want)
	case int:
		return got == float64(want)
	case fault.Code:
		return got == string(want)
	}
	return got == want
}

// at finds a value by its path, such as hops.0.status.
func at(v any, path string) (any, error) {
	for part := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			next, there := x[part]
			if !there {
				return nil, fmt.Errorf("%s: there is no %s", path, part)
			}
			v = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(x) {
				return nil, fmt.Errorf("%s: there is no element %s of %d", path, part, len(x))
			}
			v = x[i]
		default:
			return nil, fmt.Errorf("%s: nothing is inside %v", path, v)
		}
	}
	return v, nil
}

// shape wants exactly the fields of the catalog, and notes what is null.
func (o *observed) shape(t *testing.T, where string, v any, fields []catalog.Field) {
	t.Helper()
	got, isObject := v.(map[string]any)
	if !isObject {
		t.Errorf("%s is %T, not an object", where, v)
		return
	}
	for name := range got {
		if !slices.ContainsFunc(fields, func(f catalog.Field) bool { return f.Name == name }) {
			t.Errorf("%s.%s is not in the catalog", where, name)
		}
	}
	for _, f := range fields {
		value, there := got[f.Name]
		switch path := where + "." + f.Name; {
		case !there:
			t.Errorf("%s is missing", path)
		case value == nil && !f.Nullable:
			t.Errorf("%s is null", path)
		case value == nil:
			o.note("%s is null", path)
		default:
			o.note("%s is set", path)
			o.inside(t, path, value, f)
		}
	}
}

// inside looks into objects and arrays. Which of several shapes an element has
// is told by its names.
func (o *observed) inside(t *testing.T, path string, v any, f catalog.Field) {
	t.Helper()
	if f.Type == "object" && len(f.Items) == 0 {
		o.shape(t, path, v, f.Fields)
		return
	}
	elements, isList := v.([]any)
	if !isList && f.Type == "object" {
		elements = []any{v}
	}
	for _, e := range elements {
		names, isObject := e.(map[string]any)
		if !isObject {
			continue // texts
		}
		i := slices.IndexFunc(f.Items, func(item catalog.Field) bool { return hasNames(names, item.Fields) })
		if i < 0 {
			t.Errorf("%s: no shape of the catalog has the names of %v", path, names)
			continue
		}
		o.shape(t, path, e, f.Items[i].Fields)
	}
}

func hasNames(o map[string]any, fields []catalog.Field) bool {
	if len(o) != len(fields) {
		return false
	}
	for _, f := range fields {
		if _, there := o[f.Name]; !there {
			return false
		}
	}
	return true
}

// values notes the stop reason and the verdict of an answer that has one.
func (o *observed) values(body []byte) {
	var v struct {
		StopReason *string `json:"stop_reason"`
		Verdict    *string `json:"verdict"`
	}
	if json.Unmarshal(body, &v) != nil {
		return
	}
	if v.StopReason != nil {
		o.note("stop_reason %s", *v.StopReason)
	}
	if v.Verdict != nil {
		o.note("verdict %s", *v.Verdict)
	}
}
