package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// counting is a testing.TB that counts the errors it is told of.
type counting struct {
	testing.TB
	faults int
}

func (c *counting) Error(...any)          { c.faults++ }
func (c *counting) Errorf(string, ...any) { c.faults++ }

// TestCheckSeesFaults: the measure that every case relies on must be able to
// fail. Real answers pass it; each of them with one thing changed does not.
func TestCheckSeesFaults(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := openHandlers(t, l, l.setup())
	r := newRun(t, l, d, newClient())
	path := lookup("example.com", "A")
	unsigned := d.get(t, r.client, path, "")
	r.sign(path, nil, nil)
	paid := r.send(path)
	s := subject{op: catalog.DNS(), origin: d.origin, terms: l.terms, payer: r.wallet.Address().Checksum(), before: paid}
	s.hash = l.facilitator.Moved(r.payer)[0].Transaction
	replayed := r.send(path)
	r.sign(lookup("localhost", "A"), nil, nil)
	invalid := r.send(r.path)

	anywhere := []change{
		status(http.StatusTeapot), drop("Access-Control-Allow-Origin"), drop("Access-Control-Expose-Headers"), drop("X-Content-Type-Options"),
		drop("X-Request-Id"), set("Retry-After", "1"), drop("Cache-Control"), drop("Content-Type"), set("Content-Type", "text/plain"),
	}
	for _, c := range []struct {
		name    string
		e       exchange
		w       want
		changes []change
	}{
		{"offer", unsigned, unpaid(), []change{
			drop("PAYMENT-REQUIRED"), drop("Vary"), set("PAYMENT-RESPONSE", "e30="), set("PAYMENT-REQUIRED", "e30="), set("Age", "1"), body(`"5000"`, `"5001"`),
			body(`"code":"payment_required"`, `"code":"nxdomain"`), body(`"message":`, `"massage":`), body(`{`, `{"extra":1,`), body(l.terms.PayTo, "0x00"),
			body(`"token":"`, `"token":"x`), body(`"replay_seconds":86400`, `"replay_seconds":1`), body(`"duplicate_window_seconds":45`, `"duplicate_window_seconds":0`),
		}},
		{"result", paid, result(""), []change{
			drop("PAYMENT-RESPONSE"), set("PAYMENT-RESPONSE", "e30="), set("Cache-Control", "no-store"), set("Idempotent-Replayed", "true"), drop("Vary"),
			body(`"ttl":300`, `"ttl":"300"`), body(`"rcode"`, `"Rcode"`), body(`"records":[`, `"records":null,"x":[`), body(`"address"`, `"ip"`),
			set("PAYMENT-REQUIRED", "e30="), empty(),
		}},
		{"replay", replayed, result("").replayed(), []change{drop("Idempotent-Replayed"), body(`192.0.2.1`, `192.0.2.2`), drop("PAYMENT-RESPONSE"), set("Age", "-1")}},
		{"fault", invalid, fails(fault.InvalidDomain), []change{
			body(`"charged":false`, `"charged":null`), body(`"charged":false`, `"charged":true`), body(`"charged":false,`, ``), body(`"retryable":false`, `"retryable":true`),
			body(`"code":"invalid_domain"`, `"code":"invalid_type"`), body(`"message":"`, `"message":"","was":"`), body(`"request_id":"`, `"request_id":"x`),
			body(`/docs#error-invalid_domain`, `/docs#errors`), body(`{"error"`, `{"more":1,"error"`), set("PAYMENT-RESPONSE", "e30="), empty(),
		}},
	} {
		check(t, c.e, c.w, s)
		for _, spoil := range slices.Concat(anywhere, c.changes) {
			spoilt := c.e
			spoilt.header = c.e.header.Clone()
			what := spoil(&spoilt)
			seen := &counting{TB: t}
			check(seen, spoilt, c.w, s)
			if seen.faults == 0 {
				t.Errorf("%s: %s is not noticed", c.name, what)
			}
		}
	}
}

// change spoils an answer and says how.
type change func(*exchange) string

func status(n int) change {
	return func(e *exchange) string { e.status = n; return fmt.Sprint("status ", n) }
}

func drop(name string) change {
	return func(e *exchange) string { e.header.Del(name); return "no " + name }
}

func set(name, value string) change {
	return func(e *exchange) string { e.header.Set(name, value); return name + ": " + value }
}

func empty() change {
	return func(e *exchange) string { e.body = nil; return "no body" }
}

// body replaces a part of the body, which must be there.
func body(old, other string) change {
	return func(e *exchange) string {
		if !strings.Contains(string(e.body), old) {
			return "THE BODY HAS NO " + old
		}
		e.body = bytes.Replace(e.body, []byte(old), []byte(other), 1)
		return old + " -> " + other
	}
}
