package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
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

// TestNobodyThere requests the offer of a service that does not answer. The client must give
// up after firstAnswer, before it signs anything.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuyer(t, "http://silent.example/", "")
		b.client.HTTP = &http.Client{Transport: silentNetwork{}}
		begun := time.Now()
		_, _, err := b.requestOffer(t.Context())
		if took := time.Since(begun); err == nil || !strings.Contains(err.Error(), "silent.example does not answer within 15s") || took != firstAnswer {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// TestAgainWithoutANetwork resends a kept payment without a network. The client must give up
// after firstAnswer, and must say that the payment is kept and how to continue. This limit is
// for connecting only: an answer may take longer.
func TestAgainWithoutANetwork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuyer(t, "http://silent.example/", "")
		path, err := b.store.savePayment(payment{URL: "http://silent.example/", Signature: "s"}, noon())
		must(t, err)
		b.transport = newTransport(func(ctx context.Context, network, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
		})
		begun := time.Now()
		err = b.run(t.Context(), options{again: "1", dir: string(b.store)})
		checkError(t, err, "silent.example does not answer within 15s: is the address right, and is there a network?\n"+
			"Nothing was sent this time, and the payment is kept. When the service can be reached again: make pay AGAIN="+path)
		if took := time.Since(begun); took != firstAnswer {
			t.Errorf("given up after %s, want %s", took, firstAnswer)
		}
	})
}

// TestServiceWithoutANetwork sends a signature to a service that answers every try with an
// error, in most cases late. The client must not begin a try that would end after the time
// limit for all tries (patience). Only while the payment is still being processed may the
// client go on for longer. At the end the client must print how to continue.
func TestServiceWithoutANetwork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code         string
		delay        time.Duration
		retryAfter   []string // the Retry-After of each answer
		wantTries    int
		wantDuration time.Duration
	}{
		"nothing answers its questions": {code: "dns_timeout", delay: 7 * time.Second, retryAfter: []string{"1"}, wantTries: 1, wantDuration: 7 * time.Second},
		"half of that":                  {code: "ssl_timeout", delay: 3 * time.Second, retryAfter: []string{"1", "10"}, wantTries: 2, wantDuration: 7 * time.Second},
		"there is no way out":           {code: "upstream_unavailable", retryAfter: []string{"1", "10", "60"}, wantTries: 3, wantDuration: 11 * time.Second},
		"another seller's words":        {code: "no_luck", delay: time.Second, retryAfter: []string{"2"}, wantTries: 5, wantDuration: 13 * time.Second},
		"the money moves":               {code: "settlement_uncertain", delay: 7 * time.Second, retryAfter: []string{"1", "10", "600"}, wantTries: 3, wantDuration: 32 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBuyer(t, "http://service.example/", "")
				s := &slowService{delay: c.delay, code: c.code, retryAfter: c.retryAfter}
				b.transport, b.now, b.after = s, time.Now, time.After
				begun := time.Now()
				err := b.send(t.Context(), "signature")
				if took := time.Since(begun); !errors.Is(err, errAnswered) || s.tries != c.wantTries || took != c.wantDuration {
					t.Errorf("%v after %d tries and %s, want %d and %s", err, s.tries, took, c.wantTries, c.wantDuration)
				}
				if last := b.notes.String(); !strings.Contains(last, "         No answer yet; the payment is kept. From ") || !strings.HasSuffix(last, ": make pay AGAIN=1\n") {
					t.Error(last)
				}
			})
		})
	}
}

// slowService is a service that takes a while to answer, and answers every request with an
// error.
type slowService struct {
	delay      time.Duration
	code       string
	retryAfter []string // the Retry-After of each answer; further answers repeat the last one
	tries      int
}

func (l *slowService) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(l.delay)
	w := httptest.NewRecorder()
	answer{http.StatusGatewayTimeout, l.retryAfter[min(l.tries, len(l.retryAfter)-1)], errorJSON(l.code)}.write(w)
	l.tries++
	return w.Result(), nil
}

// silentNetwork is a network that loses every packet.
type silentNetwork struct{}

func (silentNetwork) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestKeep checks that payments are kept completely, in order, and in files that only their owner
// can read.
func TestKeep(t *testing.T) {
	t.Parallel()
	f := folder(filepath.Join(t.TempDir(), ".local", "payments"))
	if _, err := f.latestPayment(); err == nil || !strings.Contains(err.Error(), "Pay for something first") {
		t.Error(err)
	}
	must(t, os.MkdirAll(string(f), 0o755))
	for i, at := range []time.Duration{0, time.Nanosecond, time.Second, 24 * time.Hour} {
		want := payment{URL: "http://127.0.0.1/" + strings.Repeat("a", i), Key: "k", Signature: "s", Payer: "p"}
		path, err := f.savePayment(want, noon().Add(at))
		must(t, err)
		last, err := f.latestPayment()
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

// TestUnreachable checks the errors for a service that cannot be reached. They must name the
// cause, the address or the command that helps. It also checks the URL of a service that
// listens on all addresses.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host       string
		err        error
		wantSuffix string
	}{
		{"127.0.0.1:8402", syscall.ECONNREFUSED, "Start the service there with:\n  make run"},
		{"example.com", syscall.ECONNREFUSED, "is the port right?"},
		{"example.com", &net.DNSError{IsNotFound: true}, "there is no host example.com: is the name in URL right?"},
		{"example.com", &net.DNSError{Err: "no\x1b[31m"}, "no?[31m\nexample.com cannot be reached: is there a network?"},
		{"example.com", &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}, "cannot be reached: is there a network?"},
		{"example.com", context.Canceled, "stopped before anything was signed"},
	} {
		if got := unreachableError(&url.URL{Host: c.host}, c.err); !strings.HasSuffix(got.Error(), c.wantSuffix) {
			t.Errorf("%v: %q, want %q", c.err, got, c.wantSuffix)
		}
	}
	if got, err := localPing("[::]:82"); err != nil || got != "http://[::1]:82"+catalog.Ping().Path {
		t.Errorf("%q, %v", got, err)
	}
}

// TestLost sends a signature whose answer is lost. The error must say that the payment may
// have been made, and which command continues with that payment.
func TestLost(t *testing.T) {
	t.Parallel()
	s := sell(t, func(http.ResponseWriter, int) { panic(http.ErrAbortHandler) })
	b := newBuyer(t, s.URL+"/it's", "")
	err := b.runStoppable(t, b.pay)
	if err == nil || !strings.HasSuffix(err.Error(), "the payment may have been made. make pay AGAIN="+b.savedFile+" continues with it") || s.sent() == 0 || b.out.Len() > 0 {
		t.Errorf("%v, %d signatures, %s", err, s.sent(), &b.out)
	}
}
