package x402test

import (
	"bytes"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// runProcess opens a facilitator on the journal, as a new process would, and passes it to the
// function do. The second argument of do is a function that settles the authorization with a
// nonce, and reports whether that authorization executes.
func runProcess(t *testing.T, journal string, do func(f *Facilitator, settle func(nonce byte) bool)) {
	t.Helper()
	f, err := NewFacilitator(FacilitatorConfig{Now: time.Now, Journal: journal})
	must(t, err)
	do(f, func(nonce byte) bool {
		said := f.perform(Honest, &x402.Payment{Nonce: [32]byte{nonce}, Value: big.NewInt(5000)}, x402.Requirements{}).body
		if !said.Success && said.ErrorReason != x402.ReasonNonceUsed {
			t.Errorf("refused: %+v", said)
		}
		return said.Success
	})
	must(t, f.Close())
}

// TestJournal checks that every authorization executes at most once, even after a restart, and
// even if a crash has cut the last line at any place. Complete lines are kept, and so are
// lines that are written after the crash. An unreadable line causes an error that names the
// file, and the file is not changed. Skipping the line would let a payment execute again.
func TestJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "books")
	runProcess(t, path, func(_ *Facilitator, settles func(byte) bool) {
		for nonce := range byte(2) {
			if !settles(nonce) || settles(nonce) {
				t.Fatal("a payment was not settled, or twice")
			}
		}
	})
	whole, err := os.ReadFile(path)
	must(t, err)
	begin := bytes.IndexByte(whole, '\n') + 1 // the beginning of the last line
	for cut := begin; cut <= len(whole); cut++ {
		must(t, os.WriteFile(path, whole[:cut], 0o600))
		moved := 2
		if cut >= len(whole)-1 { // the whole line, or everything except its line break
			moved = 3
		}
		runProcess(t, path, func(_ *Facilitator, settles func(byte) bool) {
			if !settles(2) {
				t.Fatalf("cut at %d: a new payment was refused", cut)
			}
		})
		runProcess(t, path, func(f *Facilitator, settles func(byte) bool) {
			if n := len(f.Transfers()); n != moved || settles(0) || settles(2) || settles(1) != (moved == 2) {
				t.Errorf("cut at %d: %d transfers after a restart, want %d, or a payment executed twice", cut, n, moved)
			}
		})
		runProcess(t, path, func(f *Facilitator, _ func(byte) bool) {
			if list := f.Transfers(); len(list) != 3 || list[0].Value != "5000" {
				t.Errorf("cut at %d: %+v in the end, want 3 transfers", cut, list)
			}
		})
	}
	checkRefusesJournals(t, path, string(whole[:begin]))
}

// checkRefusesJournals plays three journals in which one line is not a transfer.
// NewFacilitator must refuse each journal and leave its file unchanged.
func checkRefusesJournals(t *testing.T, path, line string) {
	t.Helper()
	for text, says := range map[string]string{
		line[:40] + line + line:               "line 1 is not a transfer",
		line + "{}\n":                         "line 2 is not a transfer",
		line + strings.Repeat("x", 99) + "\n": "line 2 is not a transfer",
	} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := NewFacilitator(FacilitatorConfig{Journal: path})
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q with the path", err, says)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("%s: the file was changed (%v)", says, err)
		}
	}
}
