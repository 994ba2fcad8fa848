package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	rdapbootstrap "github.com/openrdap/rdap/bootstrap"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

const (
	// fresh is how long a bootstrap file is used before a lookup looks for a newer one.
	fresh = 24 * time.Hour

	// The pause after a failed download doubles from firstPause up to longestPause.
	firstPause   = 2 * time.Second
	longestPause = 10 * time.Minute

	// A lookup has eight seconds. These limits for getting the bootstrap file leave time to
	// query the registry.
	fetchTimeout = 3 * time.Second
	cacheTimeout = 1500 * time.Millisecond
)

// bootstrap holds the bootstrap file in use.
type bootstrap struct {
	cfg   whois.Config
	http  *http.Client
	turn  chan struct{} // a lock of capacity one; its holder looks for a newer file
	state atomic.Pointer[state]
}

// state holds the current file and the history of downloads. A state is never changed.
// Instead, the holder of bootstrap.turn stores a new one.
type state struct {
	registry // nil until a file has been loaded
	fetched  time.Time
	notUntil time.Time // no download before this time
	failures int       // consecutive failed downloads
}

func newBootstrap(cfg whois.Config) *bootstrap {
	file := transport{
		dial:  trusted(cfg.Connector, cfg.Direct),
		roots: cfg.RootCAs,
		// In 2026 the file has 49 KB, 600 services and 1,200 top-level domains.
		maxBody: 512 << 10,
		limits:  untrusted.Limits{Depth: 8, Values: 50_000},
	}
	b := &bootstrap{
		cfg:  cfg,
		turn: make(chan struct{}, 1),
		http: &http.Client{CheckRedirect: stay, Transport: file},
	}
	b.state.Store(&state{})
	return b
}

// due reports whether it is time to look for a newer file.
func (b *bootstrap) due(s *state) bool {
	if s.registry == nil {
		return true
	}
	now := b.cfg.Now()
	age := now.Sub(s.fetched)
	isFresh := age >= 0 && age < fresh // age is negative if the clock of the machine that fetched the file is ahead
	return !isFresh && !now.Before(s.notUntil)
}

// load returns the file in use. If a newer file is due, one of the concurrent calls looks for
// it first, and the other calls wait. The error of load is whois_timeout if ctx ends first,
// and otherwise bootstrap_unavailable. During the pause after a failed download,
// bootstrap_unavailable is marked as prevented (fault.Error.IsPrevented).
func (b *bootstrap) load(ctx context.Context) (registry, error) {
	if s := b.state.Load(); !b.due(s) {
		return s.registry, nil
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, lookup.Fault(lookup.WhoisTimeout, ctx.Err())
	}
	s := *b.state.Load()
	if !b.due(&s) { // meanwhile, another call has tried to load the file
		return s.registry, nil
	}
	err := b.update(ctx, &s)
	b.state.Store(&s)
	if s.registry == nil {
		return nil, err
	}
	b.warn(ctx, err, "was not refreshed")
	return s.registry, nil
}

func (b *bootstrap) warn(ctx context.Context, err error, what string) {
	if err != nil {
		b.cfg.Log.WarnContext(ctx, "the RDAP bootstrap file "+what, "error", err)
	}
}

// update takes a newer file from the Cache, where another process may have put it. If the
// Cache has none, update downloads the file and puts it into the Cache.
func (b *bootstrap) update(ctx context.Context, s *state) error {
	cached, fetched := b.restore(ctx)
	if cached != nil && (s.registry == nil || fetched.After(s.fetched)) {
		s.registry = cached
		s.fetched = fetched
	}
	if !b.due(s) {
		return nil
	}
	if pause := s.notUntil.Sub(b.cfg.Now()); pause > 0 {
		waiting := lookup.Fault(lookup.BootstrapUnavailable, errors.New("whois: waiting after a failed download"))
		return waiting.After(pause).Prevented()
	}
	doc, r, err := b.download(ctx)
	if err == nil {
		s.registry = r
		s.fetched = b.cfg.Now()
		s.failures = 0
		b.save(ctx, doc, s.fetched)
		return nil
	}
	if s.registry == nil && ctx.Err() != nil { // no pause, because the next caller may have more time
		return lookup.Fault(lookup.WhoisTimeout, err)
	}
	s.notUntil = b.cfg.Now().Add(min(longestPause, firstPause<<min(s.failures, 16)))
	s.failures++
	return lookup.Fault(lookup.BootstrapUnavailable, err)
}

// restore returns the file in the Cache, or nil if there is none or it is unusable.
func (b *bootstrap) restore(ctx context.Context) (r registry, fetched time.Time) {
	if b.cfg.Cache == nil {
		return nil, fetched
	}
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	doc, fetched, err := b.cfg.Cache.Get(ctx)
	if err == nil && len(doc) > 0 {
		r, err = parseRegistry(doc)
	}
	b.warn(ctx, err, "of the cache is unusable")
	return r, fetched
}

func (b *bootstrap) save(ctx context.Context, doc []byte, fetched time.Time) {
	if b.cfg.Cache == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	b.warn(ctx, b.cfg.Cache.Put(ctx, doc, fetched), "was not put into the cache")
}

func (b *bootstrap) download(ctx context.Context) (doc []byte, r registry, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.cfg.BootstrapURL, http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", b.cfg.UserAgent)
	resp, err := b.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("whois: bootstrap file: HTTP status %d", resp.StatusCode)
	}
	doc, err = io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, err
	}
	r, err = parseRegistry(doc)
	return doc, r, err
}

// registry is a parsed bootstrap file. It maps domain suffixes to base URLs, and is never
// changed.
type registry map[string]string

// parseRegistry parses a bootstrap file for domains (RFC 9224 §3, §4). It returns an error for
// a file without a usable server, so that such a file never replaces a good one.
func parseRegistry(doc []byte) (registry, error) {
	file, err := rdapbootstrap.NewFile(doc)
	if err != nil {
		return nil, fmt.Errorf("whois: bootstrap file: %w", err)
	}
	if file.Version != "1.0" {
		return nil, fmt.Errorf("whois: bootstrap file of version %.20q", file.Version)
	}
	r := registry{}
	for suffix, urls := range file.Entries {
		suffix = strings.ToLower(strings.TrimSuffix(suffix, "."))
		if base := chooseBase(urls); base != "" && suffix != "" {
			r[suffix] = base
		}
	}
	if len(r) == 0 {
		return nil, errors.New("whois: bootstrap file: no usable service")
	}
	return r, nil
}

// find returns the base URL for the longest suffix of a name that the file has. A suffix
// consists of whole labels (RFC 9224 §4).
func (r registry) find(name string) (base string, ok bool) {
	for {
		if base, ok := r[name]; ok {
			return base, true
		}
		_, parent, more := strings.Cut(name, ".")
		if !more {
			return "", false
		}
		name = parent
	}
}

// chooseBase returns the first usable https URL, or else the first usable http URL (RFC 9224
// §5.1). It adds a slash at the end if there is none. It returns "" if no URL is usable.
func chooseBase(urls []*url.URL) string {
	for _, scheme := range []string{"https", "http"} {
		for _, u := range urls {
			if u.Scheme != scheme || !isBase(u) {
				continue
			}
			lower := *u
			lower.Host = strings.ToLower(u.Host)
			if !strings.HasSuffix(u.EscapedPath(), "/") {
				lower = *lower.JoinPath("/")
			}
			return lower.String()
		}
	}
	return ""
}

// isBase reports whether a URL, apart from its scheme, has a host and a path and nothing else.
func isBase(u *url.URL) bool {
	hasQuery := u.RawQuery != "" || u.ForceQuery
	return u.Hostname() != "" && u.User == nil && !hasQuery && u.Fragment == ""
}
