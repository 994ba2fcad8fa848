package purse_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
)

const (
	server  = "https://api.example.com/mcp"
	network = "eip155:8453"
	asset   = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
	payee   = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
)

func open(t *testing.T, dir string, now func() time.Time) *purse.Purse {
	t.Helper()
	p, err := purse.Open(dir, now, time.After)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func entry(n int, at time.Time) purse.Entry {
	return purse.Entry{Nonce: fmt.Sprint(n), Tool: "a", Network: network, Asset: asset, Amount: "5000", At: at}
}

// TestReserveAtOnce lets many callers reserve at once. Each has its own Purse for the same folder,
// as separate processes would. Together they must reserve exactly the budget.
func TestReserveAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all sync.WaitGroup
	var taken atomic.Int64
	for n := range 12 {
		all.Go(func() {
			var over *purse.OverBudget
			switch err := open(t, dir, time.Now).Reserve(t.Context(), entry(n, time.Now()), big.NewInt(35_001)); {
			case err == nil:
				taken.Add(1)
			case !errors.As(err, &over):
				t.Error(err)
			}
		})
	}
	all.Wait()
	signed, err := open(t, dir, time.Now).RecentEntries()
	if taken.Load() != 7 || len(signed) != 7 || err != nil {
		t.Errorf("%d were taken, %d are in the book: %v", taken.Load(), len(signed), err)
	}
}

// TestSumByToken checks that each token of each network has a separate sum. The letter case of
// the token's address must not matter. A negative amount must be refused.
func TestSumByToken(t *testing.T) {
	t.Parallel()
	p := open(t, t.TempDir(), time.Now)
	e := entry(1, time.Now())
	reserve := func(limit int64) error { return p.Reserve(t.Context(), e, big.NewInt(limit)) }
	if err := reserve(5000); err != nil {
		t.Fatal(err)
	}
	e.Asset = strings.ToLower(asset)
	if err := reserve(9999); err == nil {
		t.Error("the same token in lower case has another sum")
	}
	e.Network = "eip155:84532"
	if err := reserve(5000); err != nil {
		t.Error(err)
	}
	e.Amount = "-1"
	if err := reserve(5000); err == nil {
		t.Error("a negative amount is taken")
	}
}

// TestBrokenBook checks that a book that cannot be read stops all payments, and that the error
// says what a person can do.
func TestBrokenBook(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"version":2}`, `{"version":1,"signed":7}`} {
		dir := t.TempDir()
		p := open(t, dir, time.Now)
		if err := os.WriteFile(filepath.Join(dir, "book.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.Reserve(t.Context(), entry(1, time.Now()), big.NewInt(1e9)); err == nil || !strings.Contains(err.Error(), "nothing is paid until a person repairs it") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestHold checks that only one caller at a time holds a purchase. The next caller must read
// exactly what the previous one stored, even unusual characters.
func TestHold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := open(t, dir, time.Now)
	arguments := []byte(`{"a":"<&> \u2028"}`)
	c, release, err := p.Hold(t.Context(), server, "tool", arguments)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	if _, _, err := open(t, dir, time.Now).Hold(short, server, "tool", arguments); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("held twice: %v", err)
	}
	c.Payment = &purse.Payment{Payload: json.RawMessage(`{"x":"<1.50>"}`), Sending: true}
	if err := p.Keep(c); err != nil {
		t.Fatal(err)
	}
	release()
	again, release, err := open(t, dir, time.Now).Hold(t.Context(), server, "tool", arguments)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if string(again.Arguments) != string(arguments) || string(again.Payment.Payload) != `{"x":"<1.50>"}` || !again.Payment.Sending {
		t.Errorf("read back: %s %+v", again.Arguments, again.Payment)
	}
}

// TestLeavesNothing lets many callers hold a purchase, one after the other, and release it
// without storing it. Two callers must never hold it at once, and no file may be left at the
// end.
func TestLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all sync.WaitGroup
	var holders atomic.Int32
	atOnce := make(chan time.Time) // makes every pause end at once
	close(atOnce)
	for range 8 {
		p, err := purse.Open(dir, time.Now, func(time.Duration) <-chan time.Time { return atOnce })
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for range 60 {
				_, release, err := p.Hold(t.Context(), server, "tool", []byte("{}"))
				if err != nil {
					t.Error(err)
					return
				}
				if holders.Add(1) != 1 {
					t.Error("two hold one purchase")
				}
				runtime.Gosched()
				holders.Add(-1)
				release()
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(filepath.Join(dir, "purchases")); len(left) != 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestBrokenPurchase checks that a purchase whose file cannot be read is not paid again.
func TestBrokenPurchase(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"version":1,"server":"x"}`} {
		dir := t.TempDir()
		p := open(t, dir, time.Now)
		id := purse.ID(server, "tool", []byte("{}"))
		if err := os.WriteFile(filepath.Join(dir, "purchases", id+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.Hold(t.Context(), server, "tool", []byte("{}")); err == nil || !strings.Contains(err.Error(), "nothing is paid for this question") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestSweep checks that purchases are removed a day after their answer, and that purchases
// without an answer are kept.
func TestSweep(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := open(t, t.TempDir(), func() time.Time { return now })
	for i, answer := range []*purse.Answer{nil, {At: now.Add(-purse.Day)}, {At: now.Add(time.Second - purse.Day)}} {
		c, release, err := p.Hold(t.Context(), server, "tool", fmt.Appendf(nil, `{"n":%d}`, i))
		if err != nil {
			t.Fatal(err)
		}
		c.Answer = answer
		if err := p.Keep(c); err != nil {
			t.Fatal(err)
		}
		release()
	}
	if err := p.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := p.Purchases()
	if len(all) != 2 || err != nil {
		t.Errorf("%d are left, %v", len(all), err)
	}
}

// TestAllowance checks that an allowance is accepted only if it is complete, is for the same
// server, and is accessible only to its owner.
func TestAllowance(t *testing.T) {
	t.Parallel()
	good := purse.Allowance{Server: server, PayTo: payee, Network: network, Asset: asset, PerCall: "100000", PerDay: "1000000", KeyFile: "/home/me/key", Allowed: time.Now()}
	for name, c := range map[string]struct {
		edit    func(t *testing.T, a *purse.Allowance)
		mode    os.FileMode
		wantErr string
	}{
		"as it is written": {mode: 0o600},
		"others can read":  {mode: 0o640, wantErr: "chmod 600"},
		"another server":   {mode: 0o600, edit: func(_ *testing.T, a *purse.Allowance) { a.Server += "/x" }, wantErr: "not for this server"},
		"no key":           {mode: 0o600, edit: func(_ *testing.T, a *purse.Allowance) { a.KeyFile = "" }, wantErr: "not for this server"},
		"no limit":         {mode: 0o600, edit: func(_ *testing.T, a *purse.Allowance) { a.PerDay = "" }, wantErr: "allowed.json"},
		"no payee":         {mode: 0o600, edit: func(_ *testing.T, a *purse.Allowance) { a.PayTo = "somebody" }, wantErr: "allowed.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := good
			if c.edit != nil {
				c.edit(t, &a)
			}
			got, err := saveAndRead(t, a, c.mode)
			if c.wantErr == "" && err == nil {
				call, day := got.Limits()
				if call.Int64() != 100_000 || day.Int64() != 1_000_000 {
					t.Errorf("%+v", got)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%v, want %s", err, c.wantErr)
			}
		})
	}
}

// saveAndRead writes an allowance to a file with the given mode, and returns what
// ReadAllowance then reads.
func saveAndRead(t *testing.T, a purse.Allowance, mode os.FileMode) (*purse.Allowance, error) {
	t.Helper()
	p := open(t, t.TempDir(), time.Now)
	if none, err := p.ReadAllowance(server); none != nil || err != nil {
		t.Errorf("before anything is allowed: %v, %v", none, err)
	}
	if err := errors.Join(p.Allow(a), os.Chmod(p.AllowanceFile(), mode)); err != nil {
		t.Fatal(err)
	}
	return p.ReadAllowance(server)
}
