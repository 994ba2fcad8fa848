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

// Request is one request that a Rate counts. It implements x402.Meter. The Gate of package
// x402 calls Open to count a request whose payment looks valid as far as the request itself
// shows. Admit and Served count all other requests.
type Request struct {
	Rate *Rate
	// Client is the key of the request's sender, a ClientKey or a DocumentsKey. Site is the
	// SiteKey under which its payment is counted.
	Client, Site string
	Paid         bool // the request carries a payment, valid or not
	// Warn is called for a failure of the store that does not change the client's answer.
	Warn func(what string, err error)

	Decision // the latest decision about the client
	isOpened bool
	window   time.Time // the beginning of the window in which the request was opened
}

// Admit returns rate_limited if the client is over its limit, and nil if the request may
// continue. It counts a request without a payment. It does not yet count a request with a
// payment, because the payment may turn out to be invalid. It refuses a request with a payment
// only if this environment knows that the client has not even one unit left.
func (q *Request) Admit(ctx context.Context) *fault.Error {
	if q.Paid {
		q.Decision = q.Rate.withTally(q.Client, func(t *tally, now time.Time) Decision {
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

// unitBytes is how many bytes of an answer count as one unit. See Served.
const unitBytes = 16 << 10

// Served counts the units that the answer to an admitted request adds. size is the length of
// the answer's body in bytes.
//
// If the request had no payment, or if the ledger has replayed the answer, the answer cost the
// client nothing. Such an answer weighs one unit per 16 KiB, rounded up. The first of these
// units is already counted, so Served counts only the others. The first answer to a payment
// adds nothing, however long it is. For a request with an invalid payment, Served counts one
// unit, because the Gate has not counted that request.
func (q *Request) Served(ctx context.Context, size int, replayed bool) {
	if q.Paid && !q.isOpened {
		q.allow(ctx)
	}
	more := (size - 1) / unitBytes
	switch {
	case more <= 0:
	case !q.Paid:
		q.Decision = q.Rate.withTally(q.Client, func(t *tally, now time.Time) Decision {
			t.count += more
			return q.Rate.decision(t, now, true, 1)
		})
	case q.isOpened && replayed:
		q.countMore(ctx, more)
	}
}

// countMore counts further units of a request that was opened and closed. It reports them to
// the store at once, because the reports of later requests do not include units that are
// counted under a SiteKey.
func (q *Request) countMore(ctx context.Context, more int) {
	r := q.Rate
	window := windowOf(r.now())
	total, err := r.count(ctx, q.Site, window, Units{All: more})
	if err != nil {
		q.Warn("replay not counted", err)
	}
	q.Decision = r.withTally(q.Site, func(t *tally, now time.Time) Decision {
		if err == nil && t.window.Equal(window) {
			t.noteTotal(total, now)
		}
		return r.decision(t, now, true, r.undecided)
	})
}

// Open counts a request whose payment looks valid as far as the request itself shows. It asks
// the store. The Gate must call Open before it calls any other service. The error is a
// *fault.Error.
func (q *Request) Open(ctx context.Context) error {
	r := q.Rate
	now := r.now()
	q.isOpened = true
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally(q.Site, now)
	ok := !t.exceeds(r.undecided, r.limit, now)
	if ok {
		q.window = t.window
		maxUnits := r.limit - t.unsentUnits()
		units := Units{All: r.undecided, Open: r.undecided - 1}
		r.mu.Unlock()
		total, counted, err := r.store.Count(ctx, q.Site, q.window, units, maxUnits)
		now = r.now()
		r.mu.Lock()
		if err != nil { // refuse the request, because the client's total is unknown
			q.Decision = r.decision(t, now, false, r.undecided)
			return fault.New(fault.LedgerUnavailable, fmt.Errorf("count the request: %w", err))
		}
		t.noteTotal(total, now)
		ok = counted
	}
	q.Decision = r.decision(t, now, ok, r.undecided)
	if !ok {
		return q.fault()
	}
	return nil
}

// Close counts the outcome of a request that was opened. It is called once. atFault says that
// the request cost the seller something and paid nothing, and that the payer may have caused
// this. At a limit of 300 units, such a request weighs 20 units, and any other request 1. If
// the store fails, the request keeps the weight that Open gave it. Close takes at most the
// time of one report, plus the time of one more report for each window into which it carries
// units.
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
	q.Decision = r.withTally(q.Site, func(t *tally, now time.Time) Decision {
		if corrects && err == nil && t.window.Equal(window) {
			t.noteTotal(total, now)
		}
		return r.decision(t, now, true, r.undecided)
	})
}

// correction returns the beginning of a window, and the units by which the outcome of the
// request changes the count of that window. present is the beginning of the present window.
func (q *Request) correction(present time.Time, atFault bool) (time.Time, Units) {
	r := q.Rate
	decided := Units{All: 1 - r.undecided, Open: 1 - r.undecided}
	ended := present.After(q.window)
	switch {
	case ended && atFault: // the request's window is over, so it counts in full in the present window
		return present, Units{All: r.atFault}
	case ended: // the request's window is over, so nothing is given back
		return present, Units{}
	case atFault:
		decided.All = r.atFault - r.undecided
	}
	return q.window, decided
}

// carry is called after a request at fault has added units to a window. total is what the
// client has now used in that window. The added units that are above the limit are a debt, and
// carry adds the debt to the next windows. Otherwise a client could begin many requests at
// once, and their faults would show only when it is too late to refuse them.
func (r *Rate) carry(ctx context.Context, client string, window time.Time, total Units, units int) (err error) {
	for range r.debtWindows {
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

// Decision says whether a request may continue, and how much of its limit the client has left.
type Decision struct {
	OK bool
	// RetryAfter is how long a refused client has to wait: two seconds if its undecided
	// requests may give back enough units, and otherwise until its window ends.
	RetryAfter time.Duration
	// Limit is the number of units in a window; 0 means that there is no limit. Remaining is
	// how many more units this environment would let pass, as far as it knows.
	Limit, Remaining int
	// Reset is the time until the window ends.
	Reset time.Duration
}

// These headers tell a client about its limit (draft-ietf-httpapi-ratelimit-headers-11).
const (
	HeaderPolicy = "RateLimit-Policy"
	HeaderLimit  = "RateLimit"
)

// Headers returns the values of HeaderPolicy and HeaderLimit. They are empty if there is no
// limit. The values say what this environment knows, and promise nothing: the draft allows a
// server to refuse a client before its limit is used up, and this server may let some requests
// pass after that.
func (d Decision) Headers() (policy, state string) {
	if d.Limit == 0 {
		return "", ""
	}
	policy = `"default";q=` + strconv.Itoa(d.Limit) + ";w=" + strconv.Itoa(wholeSeconds(Window))
	state = `"default";r=` + strconv.Itoa(d.Remaining) + ";t=" + strconv.Itoa(wholeSeconds(d.Reset))
	return policy, state
}

// fault returns rate_limited if the request was refused, and nil if it may continue.
func (d Decision) fault() *fault.Error {
	if d.OK {
		return nil
	}
	return fault.New(fault.RateLimited, nil).After(d.RetryAfter)
}

// wholeSeconds rounds a duration up to seconds, so a client that waits that long does not
// return too early.
func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// Unknown is the key for every text that cannot be parsed as an address.
const Unknown = "unknown"

// maxRemote is the length of the longest text that is parsed as an address. Every address with
// a port is shorter, unless it has a long zone.
const maxRemote = 128

// ClientKey returns the key of the client behind an address. The key is the IPv4 address or,
// for an IPv6 address, its /64 network, because that is the smallest network that a provider
// assigns. The address may have a port, brackets or a zone. An IPv4 address mapped into IPv6
// counts as IPv4. For any other text the key is Unknown. A key has at most 24 bytes of ASCII.
func ClientKey(remoteAddr string) string { return keyOf(remoteAddr, 64) }

// DocumentsKey returns the key under which a client's requests for free documents are counted.
// It differs from the ClientKey, so that a client which has used up its limit can still read
// what an error means. A key has at most 34 bytes.
func DocumentsKey(remoteAddr string) string { return "documents|" + ClientKey(remoteAddr) }

// SiteKey returns the key under which expensive requests are counted. It is like ClientKey,
// but with the /48 network of an IPv6 address. Providers assign a /56 or a /48 on request, and
// one customer then has 256 or 65,536 networks that would each count as a client.
func SiteKey(remoteAddr string) string { return keyOf(remoteAddr, 48) }

// NameKey returns the key of a client that is identified by a name, such as the name of an
// account, and not by an address. The key has 23 bytes for a name of any length, and never
// equals an address.
func NameKey(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "@" + base64.RawURLEncoding.EncodeToString(sum[:])[:22]
}

func keyOf(remoteAddr string, bits int) string {
	addr := parseRemote(remoteAddr).Unmap()
	if addr.Is4() {
		return addr.String()
	}
	prefix, _ := addr.Prefix(bits) // Prefix drops the zone; its result is invalid if addr is invalid
	if !prefix.IsValid() {
		return Unknown
	}
	return prefix.String()
}

// parseRemote parses an address, and returns the zero Addr if it cannot.
func parseRemote(s string) netip.Addr {
	if len(s) > maxRemote {
		return netip.Addr{}
	}
	if strings.HasSuffix(s, "]") { // brackets without a port
		s += ":0"
	}
	if strings.HasPrefix(s, "[") || strings.Count(s, ":") == 1 {
		withPort, _ := netip.ParseAddrPort(s) // withPort is zero after an error
		return withPort.Addr()
	}
	addr, _ := netip.ParseAddr(s)
	return addr
}
