package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

type fact struct {
	N int `json:"n"`
}

func TestChild(t *testing.T) {
	for name, c := range map[string]struct {
		look func(context.Context) (fact, error)
		want string
	}{
		"result":  {func(context.Context) (fact, error) { return fact{7}, nil }, `{"n":7}`},
		"fault":   {func(context.Context) (fact, error) { return fact{}, fault.Newf(fault.NXDomain, nil, "gone") }, `{"error":{"code":"nxdomain","message":"gone"}}`},
		"foreign": {func(context.Context) (fact, error) { return fact{}, errors.New("secret") }, `"code":"internal_error"`},
		"panic":   {func(context.Context) (fact, error) { panic("secret") }, `"code":"internal_error"`},
	} {
		b, err := json.Marshal(run(t.Context(), c.look))
		if err != nil || !strings.Contains(string(b), c.want) || strings.Contains(string(b), "secret") {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
}

// child looks a fact up that ends with an error, or with a result when it is nil.
func child(t *testing.T, err error) Child[fact] {
	t.Helper()
	return run(t.Context(), func(context.Context) (fact, error) { return fact{7}, err })
}

// A code is owed in a bundle exactly where it is owed by itself.
func TestOwedIsTheClass(t *testing.T) {
	codes := 0
	for _, i := range fault.All() {
		var want []string
		if i.Class == fault.Owed {
			want, codes = []string{"a"}, codes+1
		}
		got, prevented := owed(child(t, fault.New(i.Code, nil)).as("a"))
		if !slices.Equal(got, want) || prevented {
			t.Errorf("%s: %q, prevented %v; want %q", i.Code, got, prevented, want)
		}
	}
	if codes == 0 {
		t.Error("no code is owed")
	}
}

func TestOwed(t *testing.T) {
	tried := fault.New(fault.BootstrapUnavailable, nil)
	prevented := tried.Prevented()
	target := fault.New(fault.NXDomain, nil)
	for _, c := range []struct {
		name      string
		errs      []error // of the children a, b, c
		want      []string
		prevented bool
	}{
		{name: "no children"},
		{name: "all well", errs: []error{nil, nil, nil}},
		{name: "facts about the target", errs: []error{target, nil, target}},
		{name: "tried", errs: []error{nil, target, tried}, want: []string{"c"}},
		{name: "prevented", errs: []error{nil, target, prevented}, want: []string{"c"}, prevented: true},
		{name: "both prevented", errs: []error{prevented, nil, prevented}, want: []string{"a", "c"}, prevented: true},
		{name: "one of two tried, first", errs: []error{tried, prevented, nil}, want: []string{"a", "b"}},
		{name: "one of two tried, last", errs: []error{prevented, tried, nil}, want: []string{"a", "b"}},
		{name: "all three", errs: []error{tried, tried, tried}, want: []string{"a", "b", "c"}},
		{name: "a foreign error", errs: []error{nil, errors.New("secret"), nil}, want: []string{"b"}},
		{name: "wrapped", errs: []error{fmt.Errorf("whois: %w", prevented)}, want: []string{"a"}, prevented: true},
		{name: "prevented by another code", errs: []error{fault.New(fault.WhoisTimeout, prevented)}, want: []string{"a"}},
	} {
		var parts []part
		for i, err := range c.errs {
			parts = append(parts, child(t, err).as(string(rune('a'+i))))
		}
		if got, prevented := owed(parts...); !slices.Equal(got, c.want) || prevented != c.prevented {
			t.Errorf("%s: %q, prevented %v; want %q, %v", c.name, got, prevented, c.want, c.prevented)
		}
	}
	panicked := run(t.Context(), func(context.Context) (fact, error) { panic("secret") })
	if got, prevented := owed(panicked.as("a")); len(got) != 1 || prevented {
		t.Errorf("a panic: %q, prevented %v", got, prevented)
	}
}

// What is owed shows in the header of the answer; its body is that of spec §2.8.
func TestMarkIsNotShown(t *testing.T) {
	tried := fault.New(fault.BootstrapUnavailable, nil)
	a, err := json.Marshal(child(t, tried))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(child(t, tried.Prevented())); err != nil || string(b) != string(a) {
		t.Errorf("%s and %s, %v", a, b, err)
	}
}

func TestBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		slow := func(ctx context.Context) (fact, error) {
			<-ctx.Done()
			return fact{}, fault.New(fault.DNSTimeout, ctx.Err())
		}
		if c := run(t.Context(), slow); !c.Failed() || time.Since(begun) != budget {
			t.Errorf("%v after %s", c.Fault, time.Since(begun))
		}
		whole, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		ctx, end := children(whole)
		defer end()
		run(ctx, slow)
		if whole.Err() != nil {
			t.Error("a slow child took the bundle's own time")
		}
	})
}

// late is a context whose deadline is past and whose timer has not fired: a
// process that was just thawed.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestOver(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ahead, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	for name, c := range map[string]struct {
		ctx  context.Context
		want error
	}{
		"no deadline": {t.Context(), nil}, "time left": {ahead, nil}, "cancelled": {ended, context.Canceled},
		"thawed after the deadline": {late{t.Context()}, context.DeadlineExceeded},
	} {
		if err := over(c.ctx); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A bundle whose time is up says so, whatever its children say: where one of them
// does not heed its context, and where the process was frozen past the deadline and
// the context does not know it yet.
func TestBundlesOutOfTime(t *testing.T) {
	stubborn := look[dns.Query, dns.Result](func(context.Context, dns.Query) (dns.Result, error) {
		time.Sleep(2 * time.Second)
		return dns.Result{}, nil
	})
	h := good()
	for name, c := range map[string]struct {
		look func(context.Context) error
		want fault.Code
	}{
		"host-intel": {func(ctx context.Context) error {
			b := NewHostIntel(stubborn, takes[ssl.Query](0, ssl.Result{}, nil), takes[whois.Query](0, whois.Result{}, nil))
			_, err := b.Lookup(ctx, HostIntelQuery{Domain: "example.com", DNSType: "A"})
			return err
		}, fault.HostIntelTimeout},
		"uptime-check": {func(ctx context.Context) error {
			_, err := NewUptime(h, stubborn, h, h).Lookup(ctx, UptimeQuery{Domain: "example.com"})
			return err
		}, fault.UptimeCheckTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				for what, ctx := range map[string]context.Context{"stubborn": ctx, "thawed": late{t.Context()}} {
					if err := c.look(ctx); fault.From(err).Code != c.want {
						t.Errorf("%s: %v, want %s", what, err, c.want)
					}
				}
			})
		})
	}
}
