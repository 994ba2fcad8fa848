// Package redirect follows the HTTPS redirects that start at https://{domain}/, and returns
// each hop and the reason why the chain ended. (The service offers this lookup as "Redirect
// Tracer": spec §2.5, §3.2, §4.6.)
//
// Every host of a chain must pass the domain guard and the address guard before the package
// connects to it. A chain has at most five hops. No connection outlives a call. The package
// verifies no certificate, keeps no cookie and reads no body.
//
// A trace ends in one of these ways:
//
//	a status that does not redirect  stop_reason null
//	a Location that is not followed  missing_location, invalid_location,
//	                                 insecure_redirect, blocked_port,
//	                                 blocked_host, loop, max_hops; checked
//	                                 in this order
//	the next hop fails               nxdomain, blocked_address, connect_failed,
//	                                 handshake_failed, http_failed
//	the first hop fails              the call returns an error with that code
//	time is up, on any hop           the call returns the error redirect_timeout
package redirect

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	maxHops = 5 // spec §8

	// maxURL is the length, in bytes, of the longest URL that the package follows. Sign-in
	// redirects reach 8 KiB.
	maxURL = 16 << 10

	// minHopTime is the shortest time that a hop must have left when it starts. If a hop has
	// less, its time-out is blamed on the earlier hops.
	minHopTime = time.Second
)

// Query is the question of spec §4.6.
type Query = guard.Query

// Codes returns the codes of the errors that parsing a query and Client.Lookup can return.
func Codes() []fault.Code { return append(origin.Codes(), lookup.RedirectTimeout) }

// Result is the redirect trace of spec §2.5.
type Result struct {
	Domain     string      `json:"domain" doc:"Normalized FQDN traced"`
	StartURL   string      `json:"start_url" doc:"First URL requested"`
	FinalURL   string      `json:"final_url" doc:"Last URL fetched"`
	HopCount   int         `json:"hop_count" doc:"Number of hops"`
	Truncated  bool        `json:"truncated" doc:"Whether the hop limit ended the trace"`
	StopReason *StopReason `json:"stop_reason" doc:"Why the trace ended without a final status" schema:"StopReason"`
	Hops       []Hop       `json:"hops" doc:"Per-hop facts" schema:"Hop" show:"hops"` // never empty
}

// Hop is a URL of the chain, with the answer to the request for it. If GET replaces HEAD, both
// requests are one hop.
type Hop struct {
	Index  int    `json:"index" doc:"From 0"`
	URL    string `json:"url" doc:"URL requested"` // normalised, without fragment
	Method string `json:"method" doc:"Method of the answered request" enum:"HEAD,GET" schema:"ProbeMethod"`
	Status int    `json:"status" doc:"HTTP status"`
	PeerIP string `json:"peer_ip" doc:"Peer IP address"`
	// Location is the header as received, whatever the status. It is nil if the answer has
	// none.
	Location *string `json:"location" doc:"Location as received"`
}

// StopReason tells why a trace ended, although the last status is a redirect.
type StopReason string

// The stop reasons of spec §2.5. The last five are the error codes with which the next hop may
// fail.
const (
	MaxHops          StopReason = "max_hops"
	Loop             StopReason = "loop"
	MissingLocation  StopReason = "missing_location"
	InvalidLocation  StopReason = "invalid_location"
	InsecureRedirect StopReason = "insecure_redirect"
	BlockedHost      StopReason = "blocked_host"
	BlockedPort      StopReason = "blocked_port"
	BlockedAddress              = StopReason(lookup.BlockedAddress)
	NXDomain                    = StopReason(lookup.NXDomain)
	ConnectFailed               = StopReason(lookup.ConnectFailed)
	HandshakeFailed             = StopReason(lookup.HandshakeFailed)
	HTTPFailed                  = StopReason(lookup.HTTPFailed)
)

// StopReasons returns all stop reasons, in the order of spec §2.5.
func StopReasons() []StopReason {
	return []StopReason{
		MaxHops, Loop, MissingLocation, InvalidLocation, InsecureRedirect, BlockedHost, BlockedPort,
		BlockedAddress, NXDomain, ConnectFailed, HandshakeFailed, HTTPFailed,
	}
}

// Verdicts returns the rules for the line that summarises a Result.
func Verdicts() []lookup.Verdict {
	rules := []lookup.Verdict{
		{If: "stop_reason = max_hops", Says: "Still redirects after {hops count request}, at {final_url host}", Tone: lookup.Warn},
		{If: "stop_reason = loop", Says: "Redirects in a loop: {final_url host} leads back", Tone: lookup.Bad},
		{If: "stop_reason = missing_location", Says: "{final_url host} redirects without saying where", Tone: lookup.Bad},
	}
	targets := map[StopReason]string{
		InvalidLocation:  "a Location that is not a usable URL",
		InsecureRedirect: "a URL that is not HTTPS",
		BlockedHost:      "a host that is not a public domain name",
		BlockedPort:      "a port other than 443",
		BlockedAddress:   "an address that is not public",
		NXDomain:         "a domain that does not exist",
		ConnectFailed:    "a host that cannot be connected to",
		HandshakeFailed:  "a host whose TLS handshake fails",
		HTTPFailed:       "a host where the HTTPS request fails",
	}
	for _, reason := range StopReasons()[3:] {
		rules = append(rules, lookup.Verdict{
			If:   "stop_reason = " + string(reason),
			Says: "{final_url host} redirects to " + targets[reason],
			Tone: lookup.Bad,
		})
	}
	const failed, refused = "hops.last.status >= 500", "hops.last.status >= 400"
	const once, more = "Does not redirect: HTTP {hops.last.status}", "Ends at {final_url host} with HTTP {hops.last.status}, after {hops count request}"
	return append(rules,
		lookup.Verdict{If: "hop_count = 1 and " + failed, Says: once, Tone: lookup.Bad},
		lookup.Verdict{If: "hop_count = 1 and " + refused, Says: once, Tone: lookup.Warn},
		lookup.Verdict{If: "hop_count = 1", Says: once, Tone: lookup.Good},
		lookup.Verdict{If: failed, Says: more, Tone: lookup.Bad},
		lookup.Verdict{If: refused, Says: more, Tone: lookup.Warn},
		lookup.Verdict{Says: more, Tone: lookup.Good})
}

// Client traces redirects. It is safe for concurrent use.
type Client struct{ origins *origin.Client }

// New returns a Client that connects and sends its requests with the given origin.Client.
func New(origins *origin.Client) *Client { return &Client{origins} }

// Lookup answers a query before ctx ends. Its errors are redirect_timeout and the errors of
// the first hop. redirect_timeout is also the error if the resolvers of the service are
// silent. A time-out is marked as the target's silence if the target may be the cause: if a
// host was silent, if the name of a host could not be resolved although the resolvers work, or
// if the earlier hosts had used up nearly all of the time.
func (c *Client) Lookup(ctx context.Context, q Query) (Result, error) {
	hosts := map[string]*origin.Host{} // each is resolved only once; its connection is kept if the host allows that
	defer func() {
		for _, h := range hosts {
			h.Close()
		}
	}()
	current := httpsURL{host: q.Domain, path: "/"}
	r := Result{Domain: q.Domain, StartURL: current.url()}
	seen := map[httpsURL]bool{}
	for {
		littleTime := len(r.Hops) > 0 && isNearlyOver(ctx)
		a, err := c.fetch(ctx, hosts, current)
		if err == nil {
			err = a.Reports("Location")
		}
		if err != nil {
			return r.endAtFailure(origin.Fault(ctx, err, lookup.RedirectTimeout), littleTime)
		}
		seen[current] = true
		location := a.Header["Location"]
		hop := Hop{
			Index:  len(r.Hops),
			URL:    current.url(),
			Method: a.Method,
			Status: a.Status,
			PeerIP: a.Peer.String(),
		}
		if len(location) > 0 {
			hop.Location = new(origin.Text(location[0]))
		}
		r.Hops = append(r.Hops, hop)
		r.FinalURL = hop.URL
		r.HopCount = len(r.Hops)
		if !slices.Contains([]int{301, 302, 303, 307, 308}, a.Status) { // the redirect statuses of the Fetch standard
			return r, nil
		}
		next, stop := resolveLocation(current, location)
		switch {
		case stop != "":
		case seen[next]:
			stop = Loop
		case r.HopCount == maxHops:
			stop = MaxHops
			r.Truncated = true
		default:
			current = next
			continue
		}
		r.StopReason = &stop
		return r, nil
	}
}

// endAtFailure returns the outcome of a trace whose next hop failed with err. If littleTime is
// true, the earlier hosts left this hop hardly any time, so that its time-out is their fault.
func (r Result) endAtFailure(err error, littleTime bool) (Result, error) {
	f := fault.From(err)
	stop := StopReason(f.Code)
	if len(r.Hops) > 0 && slices.Contains(StopReasons(), stop) {
		r.StopReason = &stop
		return r, nil
	}
	if littleTime && f.Code == lookup.RedirectTimeout {
		return Result{}, f.Silence()
	}
	return Result{}, err
}

// isNearlyOver reports whether the remaining time of ctx is shorter than minHopTime. If the
// deadline has passed, it returns false: the process may have been frozen, and the hosts would
// not be to blame.
func isNearlyOver(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	if !ok {
		return false
	}
	remaining := time.Until(end)
	return remaining > 0 && remaining < minHopTime
}

func (c *Client) fetch(ctx context.Context, hosts map[string]*origin.Host, u httpsURL) (origin.Answer, error) {
	if hosts[u.host] == nil {
		target, err := c.origins.Connector.Resolve(ctx, u.host)
		if err != nil {
			return origin.Answer{}, err
		}
		hosts[u.host] = c.origins.Host(target, nil, netip.Addr{})
	}
	return hosts[u.host].Fetch(ctx, u.path)
}
