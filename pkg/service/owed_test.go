package service

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// outcome is how a child of a bundle ends.
type outcome int

const (
	answered  outcome = iota // with a result
	targets                  // with a fact about the target
	ours                     // with a failure of ours
	prevented                // untried, because of an earlier failure of ours
	outcomes
)

func (o outcome) String() string { return [...]string{"ok", "target's", "owed", "prevented"}[o] }

// err is the error of a child.
func (o outcome) err() error {
	switch o {
	case targets:
		return fault.New(fault.NXDomain, nil)
	case ours:
		return fault.New(fault.UpstreamUnavailable, nil)
	case prevented:
		return fault.New(fault.UpstreamUnavailable, nil).Prevented()
	}
	return nil
}

// ending is a lookup that ends so.
type ending[Q, R any] outcome

func (e ending[Q, R]) Lookup(context.Context, Q) (r R, err error) { return r, outcome(e).err() }

// site is the host of an uptime check.
type site struct{ ssl, headers outcome }

func (site) Resolve(context.Context, string) (guard.Target, error) { return guard.Target{}, nil }

func (site) Dial(context.Context, guard.Target, uint16) (net.Conn, netip.Addr, error) {
	return nil, netip.Addr{}, fault.New(fault.ConnectFailed, nil)
}

func (s site) Inspect(context.Context, ssl.Query, guard.Target) (ssl.Result, *tls.Conn, error) {
	return ssl.Result{}, nil, s.ssl.err()
}

func (s site) LookupOn(context.Context, headers.Query, guard.Target, *tls.Conn, netip.Addr) (headers.Result, error) {
	return headers.Result{}, s.headers.err()
}

// children are three fields of a bundle and how each ends.
type children struct {
	fields [3]string
	ends   [3]outcome
}

// everyCombination calls do with every way in which three children can end.
func everyCombination(fields [3]string, do func(children)) {
	for a := range outcomes {
		for b := range outcomes {
			for c := range outcomes {
				do(children{fields, [3]outcome{a, b, c}})
			}
		}
	}
}

// checkReply compares what the Gate is told with how the children ended, and
// says which fields the body shows as failed.
func (c children) checkReply(t *testing.T, got x402.Reply, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%v: %v", c.ends, err)
		return
	}
	var failed, owed []string
	for i, end := range c.ends {
		if end != answered {
			failed = append(failed, c.fields[i])
		}
		if end == ours || end == prevented {
			owed = append(owed, c.fields[i])
		}
	}
	none := len(owed) > 0 && !slices.Contains(c.ends[:], ours)
	if !slices.Equal(got.Owed, owed) || got.Prevented != none {
		t.Errorf("%v: owed %q, prevented %v; want %q, %v", c.ends, got.Owed, got.Prevented, owed, none)
	}
	if in := failedIn(t, got.Body, c.fields); !slices.Equal(in, failed) {
		t.Errorf("%v: the body shows %q as failed, want %q: %s", c.ends, in, failed, got.Body)
	}
}

// failedIn are those fields of a bundle's body whose value is the error object
// of spec §2.8 and nothing else.
func failedIn(t *testing.T, body []byte, fields [3]string) []string {
	t.Helper()
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(body, &parts); err != nil {
		t.Fatal(err)
	}
	var failed []string
	for _, name := range fields {
		var value struct {
			Error map[string]string `json:"error"`
		}
		if err := json.Unmarshal(parts[name], &value); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if value.Error == nil {
			continue
		}
		failed = append(failed, name)
		if len(value.Error) != 2 || value.Error["code"] == "" || value.Error["message"] == "" {
			t.Errorf("%s: %s", name, parts[name])
		}
	}
	return failed
}

// replyOf runs the job of an operation as the Gate does.
func replyOf(t *testing.T, op Operation) (x402.Reply, error) {
	t.Helper()
	j, err := op.job("domain=example.com")
	if err != nil {
		t.Fatal(err)
	}
	return j.Run(t.Context())
}

func TestUptimeCheckOwes(t *testing.T) {
	everyCombination([3]string{"dns", "ssl", "headers"}, func(c children) {
		d, s, h := c.ends[0], c.ends[1], c.ends[2]
		got, err := replyOf(t, UptimeCheck(bundle.NewUptime(
			site{}, ending[dns.Query, dns.Result](d), site{ssl: s}, site{headers: h},
		)))
		if s != answered {
			c.ends[2] = s // the headers are not asked for without a connection
		}
		c.checkReply(t, got, err)
	})
}

func TestHostIntelOwes(t *testing.T) {
	everyCombination([3]string{"dns", "ssl", "whois"}, func(c children) {
		got, err := replyOf(t, HostIntel(bundle.NewHostIntel(
			ending[dns.Query, dns.Result](c.ends[0]), ending[ssl.Query, ssl.Result](c.ends[1]),
			ending[whois.Query, whois.Result](c.ends[2]),
		)))
		c.checkReply(t, got, err)
	})
}

// A bundle that fails as a whole owes all of its answer, and names no part; so
// does a single lookup, whose error alone says whether it was prevented. A code
// that the operation does not list is a bug, and a bug was not prevented.
func TestOwedAsAWhole(t *testing.T) {
	marked := fault.New(fault.DNSTimeout, nil).Prevented()
	for name, c := range map[string]struct {
		op        catalog.Operation
		err       error
		code      fault.Code
		prevented bool
	}{
		"bundle":               {catalog.HostIntel(), fault.New(fault.HostIntelTimeout, nil), fault.HostIntelTimeout, false},
		"tool":                 {catalog.DNS(), fault.New(fault.DNSTimeout, nil), fault.DNSTimeout, false},
		"tool, prevented":      {catalog.DNS(), fmt.Errorf("lookup: %w", marked), fault.DNSTimeout, true},
		"tool, unlisted":       {catalog.Headers(), marked, fault.InternalError, false},
		"tool, its own bug":    {catalog.DNS(), fault.New(fault.InternalError, marked), fault.InternalError, false},
		"bundle, child's code": {catalog.HostIntel(), marked, fault.InternalError, false},
	} {
		work := func(context.Context) (any, error) { return nil, c.err }
		parse := func(values url.Values) (url.Values, run, error) { return values, work, nil }
		got, err := replyOf(t, Operation{entry: c.op, timeout: fault.InternalError, parse: parse})
		if f := fault.From(err); f.Code != c.code || f.IsPrevented() != c.prevented {
			t.Errorf("%s: %v, prevented %v; want %s, %v", name, f, f.IsPrevented(), c.code, c.prevented)
		}
		if got.Body != nil || got.Owed != nil || got.Prevented {
			t.Errorf("%s: a reply beside the error: %+v", name, got)
		}
	}
	// A result that is no bundle's owes nothing.
	got, err := replyOf(t, DNS(ending[dns.Query, dns.Result](answered)))
	if err != nil || len(got.Body) == 0 || got.Owed != nil || got.Prevented {
		t.Errorf("%+v, %v", got, err)
	}
}
