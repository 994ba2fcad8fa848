package limit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Request is one request as a Rate counts it. It implements x402.Meter: the Gate counts a
// payment that is valid as far as the request shows, and Admit and Served all others.
type Request struct {
	Rate *Rate
	// Client is its sender, a ClientKey or a DocumentsKey, and Site the SiteKey by which
	// its payment is counted.
	Client, Site string
	Paid         bool // it carries a payment, valid or not
	// Warn is told that the store failed where that does not change the answer.
	Warn func(what string, err error)

	Decision // what is known of the client by now
	opened   bool
	window   time.Time // in which it was opened
}

// Admit returns rate_limited if the client is over its limit, and nil if the request may go
// on. A request without a payment is counted. One with a payment is refused only if not even
// one unit is left, by what this environment knows, because it may turn out not to be valid.
func (q *Request) Admit(ctx context.Context) *fault.Error {
	if q.Paid {
		q.Decision = q.Rate.of(q.Client, func(t *tally, now time.Time) Decision {
			ok := !t.exceeds(1, q.Rate.limit, now)
			return q.Rate.decision(t, now, ok, q.Rate.undecided)
		})
	} else {
		q.allow(ctx)
	}
	return q.fault()
}

func (q *Request) allow(ctx context.Context) {
	decision, err := q.Rate.allow(ctx, q.Client)
	q.Decision = decision
	if err != nil {
		q.Warn("rate limit store failed", err)
	}
}

// unit is the size of an answer without a payment that counts as one request.
const unit = 16 << 10

// Served counts what a request that was admitted has weighed beyond its first unit: a unit
// for each further started 16 KiB of an answer without a payment, or of one that the ledger
// has replayed, because repeats cost their sender nothing. The first answer to a payment is
// one unit however long it is. A request with a payment that the Gate did not count, because
// it is not valid, counts now.
func (q *Request) Served(ctx context.Context, size int, replayed bool) {
	if q.Paid && !q.opened {
		q.allow(ctx)
	}
	more := (size - 1) / unit
	switch {
	case more <= 0:
	case !q.Paid:
		q.Decision = q.Rate.of(q.Client, func(t *tally, now time.Time) Decision {
			t.count += more
			return q.Rate.decision(t, now, true, 1)
		})
	case q.opened && replayed:
		q.weighs(ctx, more)
	}
}

// weighs counts further units of a request that was opened and closed. The store is told at
// once: nothing else reports what a site has used.
func (q *Request) weighs(ctx context.Context, more int) {
	r := q.Rate
	window := windowOf(r.now())
	total, err := r.count(ctx, q.Site, window, Units{All: more})
	if err != nil {
		q.Warn("replay not counted", err)
	}
	q.Decision = r.of(q.Site, func(t *tally, now time.Time) Decision {
		if err == nil && t.window.Equal(window) {
			t.hear(total, now)
		}
		return r.decision(t, now, true, r.undecided)
	})
}

// Open counts a payment that is valid as far as the request itself shows. It asks the
// store, and the caller makes no other call before it. The error is a *fault.Error.
func (q *Request) Open(ctx context.Context) error {
	r := q.Rate
	now := r.now()
	q.opened = true
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally(q.Site, now)
	ok := !t.exceeds(r.undecided, r.limit, now)
	if ok {
		q.window = t.window
		most := r.limit - t.unsent()
		units := Units{All: r.undecided, Open: r.undecided - 1}
		r.mu.Unlock()
		total, counted, err := r.store.Count(ctx, q.Site, q.window, units, most)
		now = r.now()
		r.mu.Lock()
		if err != nil { // how much the client has used is not known
			q.Decision = r.decision(t, now, false, r.undecided)
			return fault.New(fault.LedgerUnavailable, fmt.Errorf("count the request: %w", err))
		}
		t.hear(total, now)
		ok = counted
	}
	q.Decision = r.decision(t, now, ok, r.undecided)
	if !ok {
		return q.fault()
	}
	return nil
}

// Close reports the outcome of a request that was opened, once. atFault says that its payer
// can have caused an outcome that costs us and pays nothing: the request then weighs 20
// units of a limit of 300, and otherwise 1. It takes at most the time of one
// report, and of as many as windows that it is carried into. After a failure the request
// weighs what it weighed before.
func (q *Request) Close(ctx context.Context, atFault bool) {
	r := q.Rate
	window, units := q.correction(windowOf(r.now()), atFault)
	var total Units
	var err error
	corrects := units != Units{}
	if corrects {
		total, err = r.count(ctx, q.Site, window, units)
		if err == nil && atFault {
			err = r.carry(ctx, q.Site, window, total, units.All-units.Open)
		}
		if err != nil {
			q.Warn("rate limit not corrected", err)
		}
	}
	q.Decision = r.of(q.Site, func(t *tally, now time.Time) Decision {
		if corrects && err == nil && t.window.Equal(window) {
			t.hear(total, now)
		}
		return r.decision(t, now, true, r.undecided)
	})
}

// correction is what the outcome of a request changes in the count of which window.
func (q *Request) correction(present time.Time, atFault bool) (time.Time, Units) {
	r := q.Rate
	decided := Units{All: 1 - r.undecided, Open: 1 - r.undecided}
	ended := present.After(q.window)
	switch {
	case ended && atFault: // it would cost nothing there: it counts in full now
		return present, Units{All: r.atFault}
	case ended: // nothing is given back there
		return present, Units{}
	case atFault:
		decided.All = r.atFault - r.undecided
	}
	return q.window, decided
}

// carry counts in the windows to come what a fault has added above the limit, of so many units,
// in its own: total is what the client has used there. Many requests can be undecided at once,
// and be found at fault when they are past counting.
func (r *Rate) carry(ctx context.Context, client string, window time.Time, total Units, units int) (err error) {
	for range r.debts {
		units = min(units, total.All-total.Open-r.limit)
		if units <= 0 {
			return nil
		}
		window = window.Add(Window)
		total, err = r.count(ctx, client, window, Units{All: units})
		if err != nil {
			return err
		}
	}
	return nil
}

// Decision says whether a request may go on, and how its client stands.
type Decision struct {
	OK bool
	// RetryAfter is how long a refused client has to wait: two seconds while its undecided
	// requests may give enough back, and otherwise until its window ends.
	RetryAfter time.Duration
	// Limit is the units of a window, 0 when there is no limit, and Remaining how many
	// more this environment would let pass by what it knows.
	Limit, Remaining int
	// Reset is the time until the window ends.
	Reset time.Duration
}

// The headers that say where a client stands
// (draft-ietf-httpapi-ratelimit-headers-11).
const (
	HeaderPolicy = "RateLimit-Policy"
	HeaderLimit  = "RateLimit"
)

// Headers returns the values of HeaderPolicy and HeaderLimit, empty when there is no limit.
// They say what this environment knows. That is not a promise: the draft allows a server
// to refuse earlier, and this one may refuse later.
func (d Decision) Headers() (policy, state string) {
	if d.Limit == 0 {
		return "", ""
	}
	policy = `"default";q=` + strconv.Itoa(d.Limit) + ";w=" + strconv.Itoa(wholeSeconds(Window))
	state = `"default";r=` + strconv.Itoa(d.Remaining) + ";t=" + strconv.Itoa(wholeSeconds(d.Reset))
	return policy, state
}

// fault is the rate_limited of a refused request, and nil for one that may go on.
func (d Decision) fault() *fault.Error {
	if d.OK {
		return nil
	}
	return fault.New(fault.RateLimited, nil).After(d.RetryAfter)
}

// wholeSeconds rounds up, so that a client which returns after that many seconds
// is not too early.
func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// Unknown is the key of all addresses that cannot be parsed.
const Unknown = "unknown"

// maxRemote is more than any address with a port needs. A zone may have any
// length, so longer text is not parsed.
const maxRemote = 128

// ClientKey names the client behind an address: an IPv4 address as it is, or the /64 of an
// IPv6 address, the smallest network that is assigned. The address may have a port, brackets
// or a zone; IPv4 mapped into IPv6 is IPv4. Anything else is Unknown. A key is at most 24
// bytes of ASCII.
func ClientKey(remoteAddr string) string { return keyOf(remoteAddr, 64) }

// DocumentsKey names the tally of a client's requests for free documents. It is not that
// of its ClientKey, so that a client without units left can still read what an error
// means. A key is at most 34 bytes.
func DocumentsKey(remoteAddr string) string { return "documents|" + ClientKey(remoteAddr) }

// SiteKey is a ClientKey with the /48 of an IPv6 address in place of its /64: providers
// assign a /56 or a /48 on request, which is 256 or 65,536 networks of a client's size.
// What is expensive to serve is counted by it.
func SiteKey(remoteAddr string) string { return keyOf(remoteAddr, 48) }

// NameKey names a client that is known by something else than an address, such as an
// account. Names of any length have a key of 23 bytes, which is no address.
func NameKey(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "@" + base64.RawURLEncoding.EncodeToString(sum[:])[:22]
}

func keyOf(remoteAddr string, bits int) string {
	addr := parseRemote(remoteAddr).Unmap()
	if addr.Is4() {
		return addr.String()
	}
	prefix, _ := addr.Prefix(bits) // without the zone; invalid of an invalid address
	if !prefix.IsValid() {
		return Unknown
	}
	return prefix.String()
}

// parseRemote returns the zero Addr for what is not an address.
func parseRemote(s string) netip.Addr {
	if len(s) > maxRemote {
		return netip.Addr{}
	}
	if strings.HasSuffix(s, "]") { // brackets without a port
		s += ":0"
	}
	if strings.HasPrefix(s, "[") || strings.Count(s, ":") == 1 {
		withPort, _ := netip.ParseAddrPort(s) // zero after an error
		return withPort.Addr()
	}
	addr, _ := netip.ParseAddr(s)
	return addr
}
