package main

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// A service that says nothing is given up before anything is signed.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuyer(t, "http://silent.example/", "")
		b.client.HTTP = &http.Client{Transport: silence{}}
		begun := time.Now()
		_, _, err := b.offered(t.Context())
		if took := time.Since(begun); err == nil || !strings.Contains(err.Error(), "silent.example does not answer within 15s") || took != firstAnswer {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// silence is a network that loses everything.
type silence struct{}

func (silence) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Payments are kept for their owner alone, whole, and in order.
func TestKeep(t *testing.T) {
	t.Parallel()
	f := folder(filepath.Join(t.TempDir(), ".local", "payments"))
	if _, err := f.last(); err == nil || !strings.Contains(err.Error(), "Pay for something first") {
		t.Error(err)
	}
	must(t, os.MkdirAll(string(f), 0o755))
	for i, at := range []time.Duration{0, time.Nanosecond, time.Second, 24 * time.Hour} {
		want := payment{URL: "http://127.0.0.1/" + strings.Repeat("a", i), Key: "k", Signature: "s", Payer: "p"}
		path, err := f.keep(want, noon().Add(at))
		must(t, err)
		last, err := f.last()
		if err != nil || last != path {
			t.Errorf("the last is %s (%v), want %s", last, err, path)
		}
		if got, err := readPayment(last); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
		for name, mode := range map[string]os.FileMode{path: 0o600, string(f): 0o700} {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
	}
	if files, err := os.ReadDir(string(f)); err != nil || len(files) != 4 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// What stands in the way is named, with the right command and the right address.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host string
		err  error
		ends string
	}{
		{"127.0.0.1:8402", syscall.ECONNREFUSED, "This starts it there:\n  make run"},
		{"example.com", syscall.ECONNREFUSED, "is the port right?"},
		{"example.com", &net.DNSError{IsNotFound: true}, "there is no host example.com: is the name in URL right?"},
		{"example.com", &net.DNSError{Err: "no\x1b[31m"}, "no?[31m\nexample.com cannot be reached: is there a network?"},
		{"example.com", &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}, "cannot be reached: is there a network?"},
		{"example.com", context.Canceled, "stopped before anything was signed"},
	} {
		if got := unreachable(&url.URL{Host: c.host}, c.err); !strings.HasSuffix(got.Error(), c.ends) {
			t.Errorf("%v: %q, want %q", c.err, got, c.ends)
		}
	}
	if got, err := localPing("[::]:82"); err != nil || got != "http://[::1]:82"+catalog.Ping().Path {
		t.Errorf("%q, %v", got, err)
	}
}

// The answer is lost: the payment may have been made.
func TestLost(t *testing.T) {
	t.Parallel()
	s := sell(t, func(http.ResponseWriter, int) { panic(http.ErrAbortHandler) })
	b := newBuyer(t, s.URL+"/it's", "")
	err := b.does(t, b.pay)
	if err == nil || !strings.HasSuffix(err.Error(), "the payment may have been made. make pay AGAIN=1 goes on with it") || s.sent() == 0 || b.out.Len() > 0 {
		t.Errorf("%v, %d signatures, %s", err, s.sent(), &b.out)
	}
}
