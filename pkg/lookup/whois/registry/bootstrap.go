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
	// A lookup looks for a newer bootstrap file if the file in use is at least freshAge old.
	freshAge = 24 * time.Hour

	// After a failed download there is a pause, in which no download is tried. With each further
	// failure in a row, the pause doubles, from firstPause up to longestPause.
	firstPause   = 2 * time.Second
	longestPause = 10 * time.Minute

	// The time limits for a download and for a call of the Cache. A lookup has eight seconds,
	// so these limits leave time to query the registry.
	fetchTimeout = 3 * time.Second
	cacheTimeout = 1500 * time.Millisecond
)

// bootstrap gets the bootstrap file from the Cache or by download, and keeps it in memory.
type bootstrap struct {
	cfg        whois.Config
	http       *http.Client
	updateLock chan struct{} // a lock: only the call whose value is in this channel may look for a newer file
	state      atomic.Pointer[state]
}

// state holds the bootstrap file in use and the history of downloads. A state in
// bootstrap.state is never changed. Instead, the call that holds the lock bootstrap.updateLock
// stores a new state there.
type state struct {
	registry     // the parsed file in use; nil until a file has been loaded
	fetched      time.Time
	nextDownload time.Time // the time before which no download may be tried
	failures     int       // the number of downloads that have failed since the last success
}

func newBootstrap(cfg whois.Config) *bootstrap {
	file := transport{
		dial:  dialTrusted(cfg.Connector, cfg.Direct),
		roots: cfg.RootCAs,
		// For comparison: in 2026 IANA's file has 49 KB, 600 services and 1,200 top-level
		// domains.
		maxBody: 512 << 10,
		limits:  untrusted.Limits{Depth: 8, Values: 50_000},
	}
	b := &bootstrap{
		cfg:        cfg,
		updateLock: make(chan struct{}, 1),
		http:       &http.Client{CheckRedirect: checkSameHost, Transport: file},
	}
	b.state.Store(&state{})
	return b
}

// isUpdateDue reports whether a call must look for a newer file: no file has been loaded, or
// the file is not fresh and the pause after a failed download is over.
func (b *bootstrap) isUpdateDue(s *state) bool {
	if s.registry == nil {
		return true
	}
	now := b.cfg.Now()
	age := now.Sub(s.fetched)
	isFresh := age >= 0 && age < freshAge // if the clock of the machine that fetched the file was ahead, the age is negative, and the file does not count as fresh
	return !isFresh && !now.Before(s.nextDownload)
}

// load returns the bootstrap file in use. If a newer file is due, one of the concurrent calls
// first looks for it, and the other calls wait. If no newer file is found, load returns the
// old one. If ctx ends while load waits for another call, or while it looks for the first
// file, the error is whois_timeout. If there is no file for any other reason, the error is
// bootstrap_unavailable. During the pause after a failed download, bootstrap_unavailable is
// marked as prevented (fault.Error.IsPrevented).
func (b *bootstrap) load(ctx context.Context) (registry, error) {
	if s := b.state.Load(); !b.isUpdateDue(s) {
		return s.registry, nil
	}
	select {
	case b.updateLock <- struct{}{}:
		defer func() { <-b.updateLock }()
	case <-ctx.Done():
		return nil, lookup.Fault(lookup.WhoisTimeout, ctx.Err())
	}
	s := *b.state.Load()
	if !b.isUpdateDue(&s) { // while this call waited, another call loaded a newer file, or failed to load one and began a pause
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

// update looks for a newer file and stores it in s. First it looks in the Cache, where another
// process may have put one. If a newer file is still due, update downloads the file and puts
// it into the Cache. During a pause it does not download.
func (b *bootstrap) update(ctx context.Context, s *state) error {
	cached, fetched := b.readCache(ctx)
	if cached != nil && (s.registry == nil || fetched.After(s.fetched)) {
		s.registry = cached
		s.fetched = fetched
	}
	if !b.isUpdateDue(s) {
		return nil
	}
	if pause := s.nextDownload.Sub(b.cfg.Now()); pause > 0 {
		waiting := lookup.Fault(lookup.BootstrapUnavailable, errors.New("whois: waiting after a failed download"))
		return waiting.After(pause).Prevented()
	}
	doc, r, err := b.download(ctx)
	if err == nil {
		s.registry = r
		s.fetched = b.cfg.Now()
		s.failures = 0
		b.writeCache(ctx, doc, s.fetched)
		return nil
	}
	if s.registry == nil && ctx.Err() != nil { // the call ran out of time, so begin no pause: the next call may have more time
		return lookup.Fault(lookup.WhoisTimeout, err)
	}
	s.nextDownload = b.cfg.Now().Add(min(longestPause, firstPause<<min(s.failures, 16)))
	s.failures++
	return lookup.Fault(lookup.BootstrapUnavailable, err)
}

// readCache returns the file in the Cache and the time at which it was fetched. The file is nil
// if the Cache has none, or an unusable one.
func (b *bootstrap) readCache(ctx context.Context) (r registry, fetched time.Time) {
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

func (b *bootstrap) writeCache(ctx context.Context, doc []byte, fetched time.Time) {
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

// registry is a parsed bootstrap file. It maps domain suffixes to the base URLs of RDAP
// servers, and is never changed.
type registry map[string]string

// parseRegistry parses a bootstrap file for domains (RFC 9224 §3, §4). If a file names no
// usable server, it returns an error, so that such a file never replaces a good one.
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
		if base := chooseBaseURL(urls); base != "" && suffix != "" {
			r[suffix] = base
		}
	}
	if len(r) == 0 {
		return nil, errors.New("whois: bootstrap file: no usable service")
	}
	return r, nil
}

// find returns the base URL of the RDAP server for a domain name. If the file lists several
// suffixes of the name, the longest suffix counts. A suffix consists of whole labels (RFC 9224
// §4).
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

// chooseBaseURL chooses one of the base URLs that a bootstrap file has for a suffix: the first
// usable https URL, or else the first usable http URL (RFC 9224 §5.1). If the URL does not end
// in a slash, chooseBaseURL adds one. If no URL is usable, it returns "".
func chooseBaseURL(urls []*url.URL) string {
	for _, scheme := range []string{"https", "http"} {
		for _, u := range urls {
			if u.Scheme != scheme || !isBaseURL(u) {
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

// isBaseURL reports whether a URL can be a base URL: it has a host, and no user, query or
// fragment.
func isBaseURL(u *url.URL) bool {
	hasQuery := u.RawQuery != "" || u.ForceQuery
	return u.Hostname() != "" && u.User == nil && !hasQuery && u.Fragment == ""
}
