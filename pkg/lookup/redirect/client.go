// Package redirect is the Redirect Tracer: the chain of HTTPS redirects that
// starts at https://{domain}/ (spec §2.5, §3.2, §4.6).
//
// It guarantees that every host of a chain passes the domain guard and the
// address guard before it is connected to, that only port 443 is, that a chain
// has at most five hops, and that nothing it started outlives a call. It
// verifies no certificate, keeps no cookie and reads no body.
//
// How a trace ends:
//
//	a status that is no redirect     stop_reason null
//	a Location that is not followed  missing_location, invalid_location,
//	                                 insecure_redirect, blocked_port,
//	                                 blocked_host, loop, max_hops: looked for
//	                                 in this order
//	the next hop fails               nxdomain, blocked_address, connect_failed,
//	                                 handshake_failed, http_failed
//	the first hop fails              an error of the call with that code
//	time is up, on any hop           redirect_timeout, an error of the call
package redirect

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/origin"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// maxHops is the cap of spec §8.
const maxHops = 5

// Client traces redirects. It is safe for concurrent use, and nothing of it
// runs between calls.
type Client struct {
	origins *origin.Client
}

// New returns a Client. It panics without an origin.Client.
func New(origins *origin.Client) *Client {
	if origins == nil {
		panic("redirect: no origin client")
	}
	return &Client{origins: origins}
}

// Lookup answers a query. Its errors are redirect_timeout and, when the first
// hop fails, blocked_address, nxdomain, connect_failed, handshake_failed and
// http_failed. redirect_timeout also stands for our resolvers being silent and
// for a missing route.
func (c *Client) Lookup(ctx context.Context, q Query) (Result, error) {
	ctx, cancel := c.origins.Bound(ctx)
	defer cancel()
	t := trace{origins: c.origins, hosts: map[string]*origin.Host{}, seen: map[httpsURL]bool{}}
	defer t.close()
	start := httpsURL{host: q.Domain, path: "/"}
	stop, err := t.run(ctx, start)
	if err != nil {
		return Result{}, err
	}
	r := Result{
		Domain: q.Domain, StartURL: start.url(), FinalURL: t.hops[len(t.hops)-1].URL,
		HopCount: len(t.hops), Truncated: stop == MaxHops, Hops: t.hops,
	}
	if stop != "" {
		r.StopReason = &stop
	}
	return r, nil
}

// trace is one call. Hosts are resolved once, and stay connected where they
// allow it.
type trace struct {
	origins *origin.Client
	hosts   map[string]*origin.Host
	seen    map[httpsURL]bool
	hops    []Hop
}

// run goes from hop to hop until the chain ends, and says why; "" is the end of
// the redirects.
func (t *trace) run(ctx context.Context, next httpsURL) (StopReason, error) {
	for {
		a, err := t.fetch(ctx, next)
		if err != nil {
			return t.failed(err)
		}
		t.seen[next] = true
		location := a.Header["Location"]
		t.hops = append(t.hops, hop(len(t.hops), next, a, location))
		if !redirects(a.Status) {
			return "", nil
		}
		after, stop := follow(next, location)
		switch {
		case stop != "":
			return stop, nil
		case t.seen[after]:
			return Loop, nil
		case len(t.hops) == maxHops:
			return MaxHops, nil
		}
		next = after
	}
}

func (t *trace) fetch(ctx context.Context, p httpsURL) (origin.Answer, error) {
	host := t.hosts[p.host]
	if host == nil {
		target, err := t.origins.Resolve(ctx, p.host)
		if err != nil {
			return origin.Answer{}, err
		}
		host = t.origins.Host(target)
		t.hosts[p.host] = host
	}
	return host.Fetch(ctx, p.path)
}

// failed turns the failure of a hop into the trace's end: a reason to stop
// after the first hop, if the failure is the target's.
func (t *trace) failed(err error) (StopReason, error) {
	err = origin.Fault(err, lookup.RedirectTimeout)
	var f *fault.Error
	if len(t.hops) > 0 && errors.As(err, &f) {
		if stop := StopReason(f.Code); slices.Contains(StopReasons(), stop) {
			return stop, nil
		}
	}
	return "", err
}

func (t *trace) close() {
	for _, h := range t.hosts {
		h.Close()
	}
}

func hop(index int, p httpsURL, a origin.Answer, location []string) Hop {
	h := Hop{Index: index, URL: p.url(), Method: a.Method, Status: a.Status, PeerIP: a.Peer.String()}
	if len(location) > 0 {
		v := origin.Text(location[0])
		h.Location = &v
	}
	return h
}

// redirects are the statuses that send a client on (Fetch standard); 300, 304
// and 305 do not.
func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}
