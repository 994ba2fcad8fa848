package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	rdapbootstrap "github.com/openrdap/rdap/bootstrap"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

const (
	// fresh is how long a file is used before a lookup looks for a newer one.
	fresh = 24 * time.Hour

	// The pause after a failed download doubles from firstPause up to longestPause.
	firstPause   = 2 * time.Second
	longestPause = 10 * time.Minute

	// The bounds of a download and of a call of the Cache.
	fetchTimeout = 3 * time.Second
	cacheTimeout = 1500 * time.Millisecond
)

// bootstrap holds the file that is in use.
type bootstrap struct {
	cfg  whois.Config
	http *http.Client
	turn chan struct{} // has one place, which is taken while a file is looked for

	mu       sync.Mutex
	use      registry // nil until one was loaded
	fetched  time.Time
	notUntil time.Time // no download before it
	failures int       // in a row
}

// state is the file in use, nil if there is none, whether to look for another, and how
// long no download may begin because one has failed.
func (b *bootstrap) state() (use registry, due bool, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Now()
	pause = b.notUntil.Sub(now)
	age := now.Sub(b.fetched) // below 0 by a clock that is not ours
	return b.use, b.use == nil || (age < 0 || age >= fresh) && pause <= 0, pause
}

// load returns the file in use, after it has looked for a newer one if that is due. Of
// concurrent calls one does, and the others wait for it. Its errors are
// bootstrap_unavailable, and whois_timeout when ctx ends first. A
// bootstrap_unavailable of the pause after a failed download is marked as
// prevented (fault.Error.IsPrevented): this call asked at most the Cache.
func (b *bootstrap) load(ctx context.Context) (registry, error) {
	if use, due, _ := b.state(); !due {
		return use, nil
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, lookup.Fault(lookup.WhoisTimeout, ctx.Err())
	}
	err := b.update(ctx)
	use, _, _ := b.state()
	if use == nil {
		return nil, err
	}
	if err != nil {
		b.cfg.Log.WarnContext(ctx, "the RDAP bootstrap file was not refreshed", "error", err)
	}
	return use, nil
}

// update puts a newer file to use: that of the Cache, where another process may have
// put it, else that of the URL.
func (b *bootstrap) update(ctx context.Context) error {
	if _, due, _ := b.state(); !due { // since the turn was waited for
		return nil
	}
	b.restore(ctx)
	use, due, pause := b.state()
	if !due {
		return nil
	}
	if pause > 0 {
		return lookup.Fault(lookup.BootstrapUnavailable, errors.New("whois: waiting after a failed download")).After(pause).Prevented()
	}
	err := b.download(ctx)
	if err == nil {
		return nil
	}
	if use == nil && ctx.Err() != nil { // the next caller has more time
		return lookup.Fault(lookup.WhoisTimeout, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notUntil = b.cfg.Now().Add(min(longestPause, firstPause<<min(b.failures, 16)))
	b.failures++
	return lookup.Fault(lookup.BootstrapUnavailable, err)
}

// restore takes the Cache's file if it is newer than the one in use.
func (b *bootstrap) restore(ctx context.Context) {
	if b.cfg.Cache == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, share(ctx, 4, cacheTimeout))
	defer cancel()
	doc, fetched, err := b.cfg.Cache.Get(limited)
	if err == nil && len(doc) == 0 {
		return
	}
	var r registry
	if err == nil {
		r, err = parseRegistry(doc)
	}
	if err != nil {
		b.cfg.Log.WarnContext(ctx, "the cached RDAP bootstrap file is unusable", "error", err)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.use == nil || fetched.After(b.fetched) {
		b.use, b.fetched = r, fetched
	}
}

// download fetches the file, puts it to use and into the Cache.
func (b *bootstrap) download(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, share(ctx, 2, fetchTimeout))
	defer cancel()
	doc, err := b.fetch(limited)
	if err != nil {
		return fmt.Errorf("whois: fetch the bootstrap file: %w", err)
	}
	r, err := parseRegistry(doc)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.use, b.fetched, b.failures = r, b.cfg.Now(), 0
	fetched := b.fetched
	b.mu.Unlock()
	if b.cfg.Cache == nil {
		return nil
	}
	limited, cancel = context.WithTimeout(ctx, share(ctx, 4, cacheTimeout))
	defer cancel()
	if err := b.cfg.Cache.Put(limited, doc, fetched); err != nil && ctx.Err() == nil {
		b.cfg.Log.WarnContext(ctx, "save the RDAP bootstrap file", "error", err)
	}
	return nil
}

// fetch gets the body of a 200.
func (b *bootstrap) fetch(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.cfg.BootstrapURL, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", b.cfg.UserAgent)
	resp, err := b.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("whois: HTTP status %d", resp.StatusCode)
	}
	return io.ReadAll(resp.Body)
}

// share is one part of the time that ctx leaves, and most at most: the rest is
// the lookup's.
func share(ctx context.Context, parts int, most time.Duration) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return most
	}
	return min(most, time.Until(end)/time.Duration(parts))
}

// registry is a bootstrap file as read: base URL by domain suffix. It is never
// changed.
type registry map[string]string

// parseRegistry reads a bootstrap file for domains (RFC 9224 §3, §4). A file
// that is not of that form, or that names no usable server, is an error as a
// whole, so that it never replaces a good one. A single URL that cannot be used
// is passed over, as an unknown scheme would have to be.
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

// find returns the base URL of the longest suffix of a name, by whole labels
// (RFC 9224 §4).
func (r registry) find(name string) (base string, ok bool) {
	for more := true; more; _, name, more = strings.Cut(name, ".") {
		if base, ok = r[name]; ok {
			return base, true
		}
	}
	return "", false
}

// chooseBase prefers the first https URL over the first http one (RFC 9224
// §5.1), and makes it end in a slash; empty when none can be used.
func chooseBase(urls []*url.URL) string {
	for _, scheme := range []string{"https", "http"} {
		for _, u := range urls {
			if u.Scheme != scheme || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
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
