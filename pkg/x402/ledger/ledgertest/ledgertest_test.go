package ledgertest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	Exercise(t, func(*testing.T) Planter { return new(Memory) })
}

// A field that Full leaves empty would not be tested by the round trip.
func TestFullIsFull(t *testing.T) {
	t.Parallel()
	var walk func(name string, v reflect.Value)
	walk = func(name string, v reflect.Value) {
		if v.IsZero() {
			t.Errorf("%s is empty", name)
			return
		}
		v = reflect.Indirect(v)
		if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			walk(name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
	walk("Record", reflect.ValueOf(Full("k")))
}

// recorder is a testing.TB that collects complaints.
type recorder struct {
	testing.TB
	got []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.got = append(r.got, fmt.Sprintf(format, args...))
}

func TestFaultyComplains(t *testing.T) {
	t.Parallel()
	type step func(f *Faulty)
	puts := func(r ledger.Record) step { return func(f *Faulty) { _, _ = f.Put(t.Context(), r) } }
	fetches := func(f *Faulty) { _, _ = f.Fetch(t.Context(), "k") }
	r := Full("k")
	second := Next(r)
	behind := func(f *Faulty) { MustPut(t, f.store, r) } // nobody has seen it
	other, again := Full("k"), r
	other.WriteID, other.Answer.Body = r.WriteID, []byte("other")
	again.Version++
	for name, c := range map[string]struct {
		want   string // "" for no complaint
		decide Decide
		steps  []step
	}{
		"legal use":                          {"", nil, []step{puts(r), puts(r), puts(second), puts(second), puts(Next(second))}},
		"what was read":                      {"", nil, []step{behind, fetches, puts(second)}},
		"what was in the way":                {"", nil, []step{behind, puts(First("k")), puts(second)}},
		"skipped version":                    {"nobody has seen version 2", nil, []step{puts(r), puts(Next(second))}},
		"version of an unacknowledged write": {"nobody has seen version 1", Failing(Create, FailAfter, 1), []step{puts(r), puts(second)}},
		"version of another key":             {"nobody has seen version 1", nil, []step{puts(r), puts(Next(First("l")))}},
		"write id used twice":                {"two different writes", nil, []step{puts(r), puts(again)}},
		"write id of another body":           {"two different writes", nil, []step{puts(r), puts(other)}},
	} {
		rec := &recorder{TB: t}
		f := NewFaulty(rec, new(Memory), c.decide)
		for _, use := range c.steps {
			use(f)
		}
		got := strings.Join(rec.got, "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || len(rec.got) > 1 {
			t.Errorf("%s: complaints:\n%s\nwant one with %q", name, got, c.want)
		}
	}
}
