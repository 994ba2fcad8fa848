package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

const (
	// fresh is how long a file is used without a look for a newer one.
	fresh = 24 * time.Hour
	// overdue is the age at which a lookup waits for the refresh beside it,
	// which is otherwise cancelled when the lookup is done: so it gets done
	// even where every lookup is quicker.
	overdue = 7 * fresh

	// backOff is the pause after a failed refresh.
	backOff = 10 * time.Minute
	// firstPause is the pause after a failed first load; it doubles up to
	// backOff, because until then no lookup can be answered.
	firstPause = 2 * time.Second
	// cutShort is the pause after a refresh that a lookup outran.
	cutShort = time.Minute

	// The bounds of a download and of a call of the Cache.
	fetchTimeout = 3 * time.Second
	cacheTimeout = 1500 * time.Millisecond
)

// bootstrap holds the file that is in use.
type bootstrap struct {
	url       *url.URL
	http      *http.Client
	cache     Cache // may be nil
	now       func() time.Time
	userAgent string
	log       *slog.Logger

	fetchTimeout, cacheTimeout time.Duration // bounds of a download and of a call of the Cache

	turn chan struct{} // of one place: who holds it loads

	mu       sync.Mutex
	use      registry // nil until one was loaded
	fetched  time.Time
	unsaved  []byte    // a file that the Cache does not have yet
	notUntil time.Time // no download before it
	failures int       // of first loads in a row
}

// current is the file in use, nil if there is none.
func (b *bootstrap) current() registry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.use
}

// load returns the file in use. The first time it asks the Cache, then the
// URL; of concurrent calls one does, and the others wait for it. Its errors are
// bootstrap_unavailable, and whois_timeout when ctx ends first. A
// bootstrap_unavailable of the pause after a failed download is marked as
// prevented (fault.Error.IsPrevented): this call asked at most the Cache.
func (b *bootstrap) load(ctx context.Context) (registry, error) {
	if r := b.current(); r != nil {
		return r, nil
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, lookup.Fault(lookup.WhoisTimeout, ctx.Err())
	}
	if r := b.current(); r != nil {
		return r, nil
	}
	if b.restore(ctx) {
		return b.current(), nil
	}
	if wait := b.pause(); wait > 0 {
		return nil, lookup.Fault(lookup.BootstrapUnavailable, errors.New("whois: waiting after a failed download")).After(wait).Prevented()
	}
	if err := b.download(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, lookup.Fault(lookup.WhoisTimeout, err)
		}
		b.mu.Lock()
		b.notUntil = b.now().Add(min(backOff, firstPause<<min(b.failures, 16)))
		b.failures++
		b.mu.Unlock()
		return nil, lookup.Fault(lookup.BootstrapUnavailable, err)
	}
	return b.current(), nil
}

// pause is how long no download may be begun, because one has failed.
func (b *bootstrap) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.notUntil.Sub(b.now())
}

// restore takes the Cache's file if it is newer than the one in use, and
// reports whether it did.
func (b *bootstrap) restore(ctx context.Context) bool {
	if b.cache == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, share(ctx, 4, b.cacheTimeout))
	defer cancel()
	doc, fetched, err := b.cache.Get(ctx)
	if err != nil {
		b.log.WarnContext(ctx, "read the cached RDAP bootstrap file", "error", err)
		return false
	}
	if len(doc) == 0 {
		return false
	}
	r, err := parseRegistry(doc)
	if err != nil {
		b.log.WarnContext(ctx, "the cached RDAP bootstrap file is unusable", "error", err)
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if fetched.After(b.now()) { // by a clock that is not ours: use it, and look for a newer one
		fetched = b.now().Add(-fresh)
	}
	if b.use != nil && !fetched.After(b.fetched) {
		return false
	}
	b.use, b.fetched, b.unsaved = r, fetched, nil
	return true
}

// download fetches the file and puts it to use.
func (b *bootstrap) download(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, share(ctx, 2, b.fetchTimeout))
	defer cancel()
	doc, err := fetch(ctx, b.http, b.url, b.userAgent, maxBootstrap)
	if err != nil {
		return fmt.Errorf("whois: fetch the bootstrap file: %w", err)
	}
	r, err := parseRegistry(doc)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.use, b.fetched, b.unsaved = r, b.now(), doc
	return nil
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

// upkeep is the work on the bootstrap file that goes on beside a lookup.
type upkeep struct {
	cancel context.CancelFunc
	done   chan struct{}
	wait   bool // let it finish
}

// beside starts what is due: saving a new file, or looking for one. It returns
// nil when nothing is, or when another lookup is at it. The caller must call
// end.
func (b *bootstrap) beside(ctx context.Context) *upkeep {
	b.mu.Lock()
	now := b.now()
	age := now.Sub(b.fetched)
	save := b.unsaved != nil && b.cache != nil
	refresh := age >= fresh && !now.Before(b.notUntil)
	b.mu.Unlock()
	if !save && !refresh {
		return nil
	}
	select {
	case b.turn <- struct{}{}:
	default:
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	u := &upkeep{cancel: cancel, done: make(chan struct{}), wait: age >= overdue}
	go func() {
		defer close(u.done)
		defer func() { <-b.turn }()
		if refresh {
			b.refresh(ctx)
		}
		b.save(ctx)
	}()
	return u
}

// end returns when nothing of the upkeep is left.
func (u *upkeep) end() {
	if u == nil {
		return
	}
	if !u.wait {
		u.cancel()
	}
	<-u.done
	u.cancel()
}

// finish waits for the upkeep's own end, which its time-outs bring.
func (u *upkeep) finish() {
	if u != nil {
		<-u.done
	}
}

// refresh looks for a newer file: in the Cache, where another process may have
// put it, then at the URL.
func (b *bootstrap) refresh(ctx context.Context) {
	if b.restore(ctx) && !b.stale() {
		return
	}
	err := b.download(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		b.notUntil = b.now().Add(cutShort)
	default:
		b.notUntil = b.now().Add(backOff)
		b.log.WarnContext(ctx, "the RDAP bootstrap file was not refreshed", "error", err, "age", b.now().Sub(b.fetched))
	}
}

func (b *bootstrap) stale() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now().Sub(b.fetched) >= fresh
}

// save puts a new file into the Cache. One that could not be saved is tried
// again only when the lookup ended too early.
func (b *bootstrap) save(ctx context.Context) {
	b.mu.Lock()
	doc, fetched := b.unsaved, b.fetched
	b.mu.Unlock()
	if doc == nil || b.cache == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, share(ctx, 4, b.cacheTimeout))
	defer cancel()
	err := b.cache.Put(limited, doc, fetched)
	if err != nil && ctx.Err() != nil {
		return
	}
	if err != nil {
		b.log.WarnContext(ctx, "save the RDAP bootstrap file", "error", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unsaved = nil
}
