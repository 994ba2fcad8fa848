package whois

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
)

const (
	// fresh is how long a file is used before a lookup looks for a newer one.
	fresh = 24 * time.Hour

	// The pause after a failed download doubles from firstPause up to longestPause.
	firstPause   = 2 * time.Second
	longestPause = 10 * time.Minute

	// Of eight seconds, the rest is the lookup's.
	fetchTimeout = 3 * time.Second
	cacheTimeout = 1500 * time.Millisecond
)

// bootstrap holds the file that is in use.
type bootstrap struct {
	cfg   Config
	file  fetcher
	turn  chan struct{} // has one place, which is taken while a file is looked for
	state atomic.Pointer[state]
}

// state is what is known; it is never changed, but replaced by who has the turn.
type state struct {
	servers  // nil until they were loaded
	fetched  time.Time
	notUntil time.Time // no download before it
	failures int       // in a row
}

func newBootstrap(cfg Config) *bootstrap {
	// The file of 2026 has 49 KB, 600 services and 1,200 top-level domains.
	file := fetcher{unguarded, stay, cfg.RootCAs, cfg.UserAgent, 512 << 10, strictjson.Limits{Depth: 8, Values: 50_000}}
	b := &bootstrap{cfg: cfg, turn: make(chan struct{}, 1), file: file}
	b.state.Store(&state{})
	return b
}

// due says that another file is to be looked for.
func (b *bootstrap) due(s *state) bool {
	now := b.cfg.Now()
	age := now.Sub(s.fetched) // below 0 by a clock that is not ours
	return s.servers == nil || (age < 0 || age >= fresh) && !now.Before(s.notUntil)
}

// load returns the file in use, after it has looked for a newer one if that is due. Of
// concurrent calls one does, and the others wait for it. Its errors are
// bootstrap_unavailable, and whois_timeout when ctx ends first. A
// bootstrap_unavailable of the pause after a failed download is marked as
// prevented (fault.Error.IsPrevented): this call asked at most the Cache.
func (b *bootstrap) load(ctx context.Context) (servers, error) {
	if s := b.state.Load(); !b.due(s) {
		return s.servers, nil
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, lookup.Fault(lookup.WhoisTimeout, ctx.Err())
	}
	s := *b.state.Load()
	if !b.due(&s) { // since the turn was waited for
		return s.servers, nil
	}
	err := b.update(ctx, &s)
	b.state.Store(&s)
	if s.servers == nil {
		return nil, err
	}
	b.warn(ctx, err, "was not refreshed")
	return s.servers, nil
}

func (b *bootstrap) warn(ctx context.Context, err error, what string) {
	if err != nil {
		b.cfg.Log.WarnContext(ctx, "the RDAP bootstrap file "+what, "error", err)
	}
}

// update takes a newer file: that of the Cache, where another process may have put it,
// else that of the URL, which it puts into the Cache.
func (b *bootstrap) update(ctx context.Context, s *state) error {
	if kept, fetched := b.restore(ctx); kept != nil && (s.servers == nil || fetched.After(s.fetched)) {
		s.servers, s.fetched = kept, fetched
	}
	pause := s.notUntil.Sub(b.cfg.Now())
	switch {
	case !b.due(s):
		return nil
	case pause > 0:
		return lookup.Fault(lookup.BootstrapUnavailable, errors.New("whois: waiting after a failed download")).After(pause).Prevented()
	}
	doc, newer, err := b.download(ctx)
	switch {
	case err == nil:
		s.servers, s.fetched, s.failures = newer, b.cfg.Now(), 0
		b.save(ctx, doc, s.fetched)
		return nil
	case s.servers == nil && ctx.Err() != nil: // the next caller has more time
		return lookup.Fault(lookup.WhoisTimeout, err)
	}
	s.notUntil = b.cfg.Now().Add(min(longestPause, firstPause<<min(s.failures, 16)))
	s.failures++
	return lookup.Fault(lookup.BootstrapUnavailable, err)
}

// restore returns the Cache's file; nil if it has none that can be used.
func (b *bootstrap) restore(ctx context.Context) (kept servers, fetched time.Time) {
	if b.cfg.Cache == nil {
		return nil, fetched
	}
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	doc, fetched, err := b.cfg.Cache.Get(ctx)
	if err == nil && len(doc) > 0 {
		kept, err = parseServers(doc)
	}
	b.warn(ctx, err, "of the cache is unusable")
	return kept, fetched
}

func (b *bootstrap) save(ctx context.Context, doc []byte, fetched time.Time) {
	if b.cfg.Cache == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	b.warn(ctx, b.cfg.Cache.Put(ctx, doc, fetched), "was not put into the cache")
}

func (b *bootstrap) download(ctx context.Context) ([]byte, servers, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	status, doc, err := b.file.get(ctx, b.cfg.BootstrapURL)
	switch {
	case err != nil:
		return nil, nil, err
	case status != http.StatusOK:
		return nil, nil, fmt.Errorf("whois: bootstrap file: HTTP status %d", status)
	}
	s, err := parseServers(doc)
	return doc, s, err
}

// servers are a bootstrap file as read: base URL by domain suffix. They are never changed.
type servers map[string]string

// parseServers reads a bootstrap file for domains (RFC 9224 §3, §4). A file
// that is not of that form, or that names no usable server, is an error as a
// whole, so that it never replaces a good one. A single URL that cannot be used
// is passed over, as an unknown scheme would have to be.
func parseServers(doc []byte) (servers, error) {
	var file struct {
		Version  string
		Services [][][]string
	}
	if err := json.Unmarshal(doc, &file); err != nil {
		return nil, fmt.Errorf("whois: bootstrap file: %w", err)
	}
	if file.Version != "1.0" {
		return nil, fmt.Errorf("whois: bootstrap file of version %.20q", file.Version)
	}
	s := servers{}
	for _, service := range file.Services {
		if len(service) != 2 {
			return nil, errors.New("whois: bootstrap file: a service is not names and URLs")
		}
		base := chooseBase(service[1])
		for _, suffix := range service[0] {
			if suffix = strings.ToLower(strings.TrimSuffix(suffix, ".")); base != "" && suffix != "" {
				s[suffix] = base
			}
		}
	}
	if len(s) == 0 {
		return nil, errors.New("whois: bootstrap file: no usable service")
	}
	return s, nil
}

// find returns the base URL of the longest suffix of a name, by whole labels
// (RFC 9224 §4).
func (s servers) find(name string) (base string, ok bool) {
	for more := true; more && !ok; _, name, more = strings.Cut(name, ".") {
		base, ok = s[name]
	}
	return base, ok
}

// chooseBase prefers the first https URL over the first http one (RFC 9224
// §5.1), and makes it end in a slash; empty when none can be used.
func chooseBase(urls []string) string {
	for _, scheme := range []string{"https", "http"} {
		for _, text := range urls {
			u, err := url.Parse(text)
			if err != nil || u.Scheme != scheme || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
				continue
			}
			u.Host = strings.ToLower(u.Host)
			if !strings.HasSuffix(u.EscapedPath(), "/") {
				u = u.JoinPath("/")
			}
			return u.String()
		}
	}
	return ""
}
