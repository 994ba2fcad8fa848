package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/infra/local/ledgersock"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// Without the chain the books are the ledger's, and are no books yet.
func TestBooksIncomplete(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.honest()
	s.closed()
	day := s.day.Format(time.DateOnly)
	out, notes := command(t, exitFailed, map[string]string{"LEDGER_FILE": s.path, "PAY_TO": payee}, "-books", day)
	if !strings.Contains(out, "; nothing was compared\n") || !strings.Contains(notes, "RPC_URL names no node") {
		t.Errorf("printed\n%snoted %q", out, notes)
	}
	down := startNode(t, node{down: true})
	out, notes = command(t, exitFailed, map[string]string{"LEDGER_FILE": s.path, "PAY_TO": payee, "RPC_URL": down.URL + "/s3cr3t"}, "-books", day)
	if out != "" || !strings.Contains(notes, "the books of "+day) || strings.Contains(notes, "s3cr3t") {
		t.Errorf("printed %q, noted %q", out, notes)
	}
}

// A row that cannot be read is a difference on the day of its transfer, and what
// the node cannot say makes the books incomplete. Neither hides anything else.
func TestBooksUnreadable(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.closed()
	memory := new(ledgertest.Memory)
	s.Ledger = ledger.New(memory, func() time.Time { return s.now }, rand.Text)
	s.move(1, "5000")
	s.answer(s.settled(1))
	s.move(2, "5000")
	s.must(memory.Plant(t.Context(), keyOf(2), []byte(`{"key":`)))
	s.must(memory.Plant(t.Context(), keyOf(3), []byte(`{"key":`))) // no transfer: of whatever day
	s.answer(s.settled(4))
	mute := false
	chain := chaintest.PlayNode{Moved: func() []x402test.Transfer { return s.moved }, ChainID: 8453, Now: time.Now}
	n := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if mute && bytes.Contains(body, []byte("eth_call")) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		chain.ServeHTTP(w, r)
	}))
	t.Cleanup(n.Close)
	config, err := boot.ReadLocal(func(name string) string { return map[string]string{"RPC_URL": n.URL, "PAY_TO": payee}[name] })
	s.must(err)
	var out, notes bytes.Buffer
	o := opened{name: "memory", node: "N", rows: memory, payers: memory, notes: &notes}
	o.parts, err = config.Reconciling(memory, memory, slog.New(slog.DiscardHandler), time.Now)
	s.must(err)
	if err := o.listBooks(t.Context(), &out, s.day, true); !errors.Is(err, errDifferences) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"004 answered_unpaid answered received  recorded 5000", "002 record_unreadable  received 5000 recorded"}, named(t, out.String())); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	mute = true
	out.Reset()
	if err := o.listBooks(t.Context(), &out, s.day, false); !errors.Is(err, errIncomplete) || !strings.Contains(notes.String(), keyOf(4)+": ask the chain") {
		t.Errorf("error %v, noted %s", err, &notes)
	}
	for _, want := range []string{"2 records of the whole ledger cannot be read\n", "1 record could not be compared", "record unreadable", "; 1 difference\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("printed, without %q:\n%s", want, &out)
		}
	}
}

// The books are the same through the socket of a service that runs.
func TestBooksBesideService(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.honest()
	env, day := s.env(), s.day.Format(time.DateOnly)
	end, err := ledgersock.Serve(t.Context(), s.path, s.store)
	s.must(err)
	beside, _ := command(t, 0, env, "-books", day)
	s.must(end())
	s.closed()
	if alone, _ := command(t, 0, env, "-books", day); alone != beside {
		t.Errorf("books beside the service (-alone +beside):\n%s", cmp.Diff(alone, beside))
	}
}

// A node that turns a question away is asked again.
func TestBooksAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.honest()
	s.closed()
	chain := chaintest.PlayNode{Moved: func() []x402test.Transfer { return s.moved }, ChainID: 8453, Now: time.Now}
	refused := false
	n := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !refused && bytes.Contains(body, []byte("eth_getLogs")) {
			refused = true
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		chain.ServeHTTP(w, r)
	}))
	t.Cleanup(n.Close)
	out, notes := command(t, 0, map[string]string{"LEDGER_FILE": s.path, "PAY_TO": payee, "RPC_URL": n.URL}, "-books", s.day.Format(time.DateOnly))
	if !refused || !strings.Contains(out, "; no differences\n") || !strings.HasSuffix(notes, ": asking again\n") {
		t.Errorf("printed\n%snoted %q", out, notes)
	}
}

// A day that is not over has books up to the newest safe block.
func TestBooksToday(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := time.Now().UTC()
	early, late := now.Add(-2*time.Minute), now.Add(-10*time.Second) // the node's safe block is a minute old
	if early.Day() != now.Day() {
		t.Skip("the day has just begun")
	}
	for n, at := range []time.Time{early, late} {
		s.now = at
		s.move(n+1, "5000")
		s.answer(s.settled(n + 1))
	}
	s.closed()
	out, _ := command(t, 0, s.env(), "-books", now.Format(time.DateOnly))
	if !strings.Contains(out, "what is later is not safe on the chain yet") || !strings.Contains(out, "total   1 answer sold for $0.005, $0.005 received in 1 payment; no differences\n") {
		t.Errorf("printed:\n%s", out)
	}
}

func TestReadDay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 0, 30, 0, 0, time.UTC)
	for s, says := range map[string]string{
		"2026-11-21": "", " 2026-11-22 ": "", "2026-10-20": "", "2026-10-18": "too long ago", "2026-11-23": "has not begun",
		"": "is no day", "yesterday": "is no day", "2026-02-30": "is no day", "2026-11-20T00:00:00Z": "is no day", "\x1b[31m": `"\x1b[31m" is no day`,
	} {
		day, err := readDay(s, now)
		if says == "" && (err != nil || day.Format(time.DateOnly) != strings.TrimSpace(s)) || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("readDay(%q) = %v, %v", s, day, err)
		}
	}
}
