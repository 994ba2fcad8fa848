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

// TestFullIsFull checks that Full leaves no field empty. The round trip of a record would not
// test an empty field.
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

// recorder is a testing.TB that keeps the errors in a list instead of failing the test.
type recorder struct {
	testing.TB
	got []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.got = append(r.got, fmt.Sprintf(format, args...))
}

func TestFaultyComplains(t *testing.T) {
	t.Parallel()
	r := Full("k")
	second := Next(r)
	other, again := Full("k"), r
	other.WriteID, other.Answer.Body = r.WriteID, []byte("other")
	again.Version++
	for name, c := range map[string]struct {
		want   string // part of the only error that Faulty must report; "" means that it must report none
		decide Decide
		writes []ledger.Payment // written in this order to a store that already has r; if one has no version, its key is read instead
	}{
		"legal use":                          {"", nil, []ledger.Payment{r, r, second, second, Next(second)}},
		"what was read":                      {"", nil, []ledger.Payment{{Row: ledger.Row{Key: "k"}}, second}},
		"what was in the way":                {"", nil, []ledger.Payment{First("k"), second}},
		"skipped version":                    {"nobody has seen version 2", nil, []ledger.Payment{r, Next(second)}},
		"version of an unacknowledged write": {"nobody has seen version 1", Failing(Create, FailAfter, 1), []ledger.Payment{r, second}},
		"version of another key":             {"nobody has seen version 1", nil, []ledger.Payment{r, Next(First("l"))}},
		"write id used twice":                {"two different writes", nil, []ledger.Payment{r, again}},
		"write id of another body":           {"two different writes", nil, []ledger.Payment{r, other}},
	} {
		rec, memory := &recorder{TB: t}, new(Memory)
		MustPut(t, memory, r)
		f := NewFaulty(rec, memory, c.decide)
		for _, w := range c.writes {
			if w.Version == 0 {
				_, _ = f.Fetch(t.Context(), w.Key)
			} else {
				_, _ = f.Put(t.Context(), w)
			}
		}
		got := strings.Join(rec.got, "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || len(rec.got) > 1 {
			t.Errorf("%s: complaints:\n%s\nwant one with %q", name, got, c.want)
		}
	}
}
