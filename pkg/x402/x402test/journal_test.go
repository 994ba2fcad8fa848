package x402test_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
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

func terms() x402.Terms {
	return x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}
}

// payment is the header of a payment of the first development account.
func payment(t *testing.T) string {
	t.Helper()
	w, err := x402test.WalletFromHex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80", rand.Reader)
	must(t, err)
	if got, want := w.Address().Checksum(), "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"; got != want {
		t.Errorf("address %s, want %s", got, want)
	}
	header, err := w.Pay(x402.PaymentRequired{Accepts: []x402.Requirements{terms().Requirements("5000")}}, time.Now())
	must(t, err)
	return header
}

// open is a facilitator that keeps a journal.
func open(journal string) (*x402test.Facilitator, error) {
	return x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms(), Now: time.Now, Journal: journal})
}

// session is what one process does with the books.
func session(t *testing.T, journal string, do func(f *x402test.Facilitator)) {
	t.Helper()
	f, err := open(journal)
	must(t, err)
	do(f)
	must(t, f.Close())
}

// settles says whether a payment executes.
func settles(t *testing.T, f *x402test.Facilitator, header string) bool {
	t.Helper()
	payload, err := base64.StdEncoding.DecodeString(header)
	must(t, err)
	body, err := json.Marshal(map[string]any{
		"x402Version": 2, "paymentPayload": json.RawMessage(payload), "paymentRequirements": terms().Requirements("5000"),
	})
	must(t, err)
	rec := httptest.NewRecorder()
	f.ServeHTTP(rec, httptest.NewRequest("POST", "/settle", bytes.NewReader(body)))
	var r x402.SettleResponse
	must(t, json.Unmarshal(rec.Body.Bytes(), &r))
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
	path := filepath.Join(t.TempDir(), "books")
	first, second, third := payment(t), payment(t), payment(t)
	session(t, path, func(f *x402test.Facilitator) {
		for _, header := range []string{first, second} {
			if !settles(t, f, header) || settles(t, f, header) {
				t.Fatal("a payment was not settled, or twice")
			}
		}
	})
	whole, err := os.ReadFile(path)
	must(t, err)
	begin := bytes.IndexByte(whole, '\n') + 1 // of the last line
	for cut := begin; cut <= len(whole); cut++ {
		must(t, os.WriteFile(path, whole[:cut], 0o600))
		moved := 2
		if cut >= len(whole)-1 { // all of the line, or all but its end
			moved = 3
		}
		session(t, path, func(f *x402test.Facilitator) {
			if !settles(t, f, third) {
				t.Fatalf("cut at %d: a new payment was refused", cut)
			}
		})
		session(t, path, func(f *x402test.Facilitator) {
			if n := len(f.Transfers()); n != moved {
				t.Errorf("cut at %d: %d transfers after a restart, want %d", cut, n, moved)
			}
			if settles(t, f, first) || settles(t, f, third) {
				t.Errorf("cut at %d: a payment executed twice", cut)
			}
			if got, want := settles(t, f, second), moved == 2; got != want {
				t.Errorf("cut at %d: the cut payment executed: %v, want %v", cut, got, want)
			}
		})
		session(t, path, func(f *x402test.Facilitator) {
			if list := f.Transfers(); len(list) != 3 || list[0].Value != "5000" {
				t.Errorf("cut at %d: %+v in the end, want 3 transfers", cut, list)
			}
		})
	}
}

// What cannot be read is not passed over: a payment would execute again. The
// error names the file, and the file stays as it is.
func TestUnreadableJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "books")
	session(t, path, func(f *x402test.Facilitator) { settles(t, f, payment(t)) })
	line, err := os.ReadFile(path)
	must(t, err)
	for text, says := range map[string]string{
		string(line[:40]) + string(line) + string(line): "line 1 is no transfer",
		string(line) + "{}\n":                           "line 2 is no transfer",
		string(line) + strings.Repeat("x", 1<<20):       "line 2: ",
	} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := open(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q with the path", err, says)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("%s: the file was changed (%v)", says, err)
		}
	}
}
