package x402test_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// books opens a facilitator that keeps a journal; it is closed by the caller.
func books(t *testing.T, journal string) *x402test.Facilitator {
	t.Helper()
	f, err := x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms(), Now: time.Now, Journal: journal})
	must(t, err)
	return f
}

func closeBooks(t *testing.T, f *x402test.Facilitator) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// settlement is what a service sends to /settle: one new payment.
func settlement(t *testing.T) []byte {
	t.Helper()
	w, err := x402test.NewWallet(rand.Reader)
	must(t, err)
	offer := terms().Requirements("5000")
	header, err := w.Pay(x402.PaymentRequired{Accepts: []x402.Requirements{offer}}, time.Now())
	must(t, err)
	var payload x402.Payload
	must(t, json.Unmarshal(unbase64(t, header), &payload))
	body, err := json.Marshal(map[string]any{"x402Version": 2, "paymentPayload": payload, "paymentRequirements": offer})
	must(t, err)
	return body
}

// settles says whether a payment executes.
func settles(t *testing.T, f *x402test.Facilitator, body []byte) bool {
	t.Helper()
	rec := httptest.NewRecorder()
	f.ServeHTTP(rec, httptest.NewRequest("POST", "/settle", bytes.NewReader(body)))
	var r x402.SettleResponse
	if err := json.Unmarshal(rec.Body.Bytes(), &r); err != nil {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	if !r.Success && r.ErrorReason != x402.ReasonNonceUsed {
		t.Errorf("refused for %s", r.ErrorReason)
	}
	return r.Success
}

// Every authorization executes at most once, also after a restart, for which a crash
// can have cut the last line anywhere. What was whole is kept, and what is written after
// it too.
func TestCutJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "books")
	first, second, third := settlement(t), settlement(t), settlement(t)
	f := books(t, path)
	for _, body := range [][]byte{first, second} {
		if !settles(t, f, body) || settles(t, f, body) {
			t.Fatal("a payment was not settled, or twice")
		}
	}
	closeBooks(t, f)
	whole, err := os.ReadFile(path)
	must(t, err)
	begin := bytes.IndexByte(whole, '\n') + 1 // of the last line
	for cut := begin; cut <= len(whole); cut++ {
		path := filepath.Join(dir, "cut")
		must(t, os.WriteFile(path, whole[:cut], 0o600))
		moved := 2
		if cut >= len(whole)-1 { // all of the line, or all but its end
			moved = 3
		}
		f := books(t, path)
		if !settles(t, f, third) {
			t.Fatalf("cut at %d: a new payment was refused", cut)
		}
		closeBooks(t, f)
		f = books(t, path)
		if n := len(f.Transfers()); n != moved {
			t.Errorf("cut at %d: %d transfers after a restart, want %d", cut, n, moved)
		}
		if settles(t, f, first) || settles(t, f, third) {
			t.Errorf("cut at %d: a payment executed twice", cut)
		}
		if got, want := settles(t, f, second), moved == 2; got != want {
			t.Errorf("cut at %d: the cut payment executed: %v, want %v", cut, got, want)
		}
		closeBooks(t, f)
		f = books(t, path)
		if list := f.Transfers(); len(list) != 3 || list[0].Value != "5000" {
			t.Errorf("cut at %d: %+v in the end, want 3 transfers", cut, list)
		}
		closeBooks(t, f)
	}
}

// What cannot be read is not passed over: a payment would execute again. The
// error names the file, and the file stays as it is.
func TestUnreadableJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "books")
	f := books(t, path)
	if !settles(t, f, settlement(t)) {
		t.Fatal("the first settlement failed")
	}
	closeBooks(t, f)
	line, err := os.ReadFile(path)
	must(t, err)
	for name, c := range map[string]struct{ text, says string }{
		"two lines in one":    {string(line[:40]) + string(line) + string(line), "line 1 is no transfer"},
		"a line of something": {string(line) + "{}\n", "line 2 is no transfer"},
		"a line without end":  {string(line) + strings.Repeat("x", 1<<20), "line 2: "},
	} {
		path := filepath.Join(t.TempDir(), "spoiled")
		must(t, os.WriteFile(path, []byte(c.text), 0o600))
		f, err := x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms(), Now: time.Now, Journal: path})
		if err == nil {
			t.Errorf("%s: it was opened, with %d transfers", name, len(f.Transfers()))
			closeBooks(t, f)
			continue
		}
		if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q with the path", name, err, c.says)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != c.text {
			t.Errorf("%s: the file was changed (%v)", name, err)
		}
	}
}
