package simnet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/clients"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// row is one paid request and what its answer must be.
type row struct {
	name   string // empty: the query
	op     string // slug
	domain string
	more   string // further parameters, encoded
	want   want
}

// want holds values of the answer's body by path; see at and same. An answer with
// an error has its code.
type want map[string]any

// fails is an error, and how its message begins.
func fails(code fault.Code, message ...string) want {
	w := want{"error.code": code}
	for _, m := range message {
		w["error.message"] = starts(m)
	}
	return w
}

// asks writes rows of an operation: a name (see full), the answer, and further
// parameters.
func asks(op string) func(name string, w want, more ...string) row {
	return func(name string, w want, more ...string) row {
		return row{op: op, domain: full(name), want: w, more: strings.Join(more, "&")}
	}
}

// alike are rows of an operation that are answered the same.
func alike(op string, w want, names ...string) []row {
	var rows []row
	for _, name := range names {
		rows = append(rows, asks(op)(name, w))
	}
	return rows
}

// full is a name as it is in the tables: without a dot, or one of the characters
// that stand for one in Unicode, it is below example.com.
func full(name string) string {
	if strings.ContainsAny(name, ".\u3002\uff0e\uff61") {
		return name
	}
	return name + ".example.com"
}

func (r row) String() string {
	if r.name != "" {
		return r.op + ": " + r.name
	}
	return r.op + ": " + r.domain + " " + r.more
}

func (r row) query() string {
	q := "?domain=" + url.QueryEscape(r.domain)
	if r.more != "" {
		q += "&" + r.more
	}
	return q
}

// code is that of the error, empty for an answer without one.
func (r row) code() fault.Code {
	code, _ := r.want["error.code"].(fault.Code)
	return code
}

// faults are what is wrong with an answer: its status, its code and what package
// fault says about that, and its values.
func (r row) faults(reply x402test.Reply) []string {
	var body any
	if err := json.Unmarshal(reply.Body, &body); err != nil {
		return []string{fmt.Sprintf("%d: not JSON: %v: %.300s", reply.Status, err, reply.Body)}
	}
	status, values := http.StatusOK, want{}
	if info, failed := fault.Of(r.code()); failed {
		status = info.Status
		values = want{"error.retryable": info.Retry, "error.charged": charges(info), "error.message": something}
	}
	if reply.Status != status {
		return []string{fmt.Sprintf("status %d, want %d %s: %.500s", reply.Status, status, r.code(), reply.Body)}
	}
	maps.Copy(values, r.want)
	var faults []string
	for _, path := range slices.Sorted(maps.Keys(values)) {
		got, err := at(body, path)
		if err != nil {
			faults = append(faults, fmt.Sprintf("%v: %.700s", err, reply.Body))
		} else if !same(got, values[path]) {
			faults = append(faults, fmt.Sprintf("%s is %#v, want %#v: %.700s", path, got, values[path], reply.Body))
		}
	}
	return faults
}

// charges says that money has moved when an error is answered. Every row is a
// payment of its own, so Either is before the settlement.
func charges(info fault.Info) bool { return info.Class == fault.Answer || info.Class == fault.Owed }

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
		return ok && slices.EqualFunc(list, want, func(a any, b string) bool { return a == b })
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

// seller answers paid requests.
type seller interface {
	buy(ctx context.Context, path string) (x402test.Reply, error)
}

// observed is what the answers have shown so far.
type observed struct {
	mu sync.Mutex
	// codes by operation, stop reasons, verdicts, and fields that were null or
	// not, each as one text.
	facts map[string]bool
	// api is the description that every answer is held to.
	api *clients.OpenAPI
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

// play pays for a row, and holds the answer to it and to the OpenAPI description,
// which has the exact fields of the catalog.
func (o *observed) play(t *testing.T, s seller, r row) {
	t.Helper()
	op, known := catalog.BySlug(r.op)
	if !known {
		t.Fatalf("there is no operation %s", r.op)
	}
	reply, err := buyUntil(t, s, op.Path+r.query(), func(reply x402test.Reply) bool { return len(r.faults(reply)) == 0 })
	if err != nil {
		t.Fatal(err)
	}
	o.described(t, op, reply)
	faults := r.faults(reply)
	for _, f := range faults {
		t.Error(f)
	}
	info, failed := fault.Of(r.code())
	receipt, err := reply.Receipt()
	if paid := !failed || charges(info); paid != (err == nil && receipt.Success) && r.code() != fault.Overloaded {
		t.Errorf("receipt %+v (%v) on %d %s", receipt, err, reply.Status, r.code())
	}
	switch {
	case len(faults) > 0:
	case failed:
		o.note("%s answered %s", op.Slug, r.code())
	default:
		o.result(op, reply.Body)
	}
}

// described holds an answer to the OpenAPI description.
func (o *observed) described(t *testing.T, op catalog.Operation, reply x402test.Reply) {
	t.Helper()
	answer := clients.Answer{Method: http.MethodGet, Path: op.Path, Status: reply.Status, Header: reply.Header, Body: reply.Body}
	if err := o.api.Check(answer); err != nil {
		t.Error(err)
	}
}

// result notes which fields of a result were null and which were set, and the stop
// reason or the verdict.
func (o *observed) result(op catalog.Operation, raw []byte) {
	var body map[string]any
	if json.Unmarshal(raw, &body) != nil {
		return // faults has said so
	}
	o.nullness(op.Slug, body)
	for _, name := range []string{"stop_reason", "verdict"} {
		if s, ok := body[name].(string); ok {
			o.note("%s %s", name, s)
		}
	}
}

func (o *observed) nullness(path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if value == nil {
				o.note("%s.%s is null", path, name)
				continue
			}
			o.note("%s.%s is set", path, name)
			o.nullness(path+"."+name, value)
		}
	case []any:
		for _, value := range v {
			o.nullness(path, value)
		}
	}
}
