package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// keyOfOne is the private key 1, and accountOfOne its account.
const (
	keyOfOne     = "0x0000000000000000000000000000000000000000000000000000000000000001"
	accountOfOne = "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf"
)

func keyFile(tb testing.TB, key string) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// TestPay runs the client of make pay against the local runner.
func TestPay(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := openLocal(t, l, l.setup())
	withKey := "-key-file " + keyFile(t, keyOfOne) + " "
	url := d.base + lookup("example.com", "A")
	paid := 0
	for _, c := range []struct {
		name string
		line string
		code int
		says string // on stderr
		body string // on stdout, a part of it
	}{
		{"paid", d.base + lookup("example.com", "MX"), 0, "status:  200 OK, transaction 0x", `"exchange": "mx1.example.com"`},
		{"ping", d.base + catalog.Ping().Path, 0, "price:   0.001 USDC on Base to 0x", `"ok": true`},
		{"bad parameters", d.base + lookup("localhost", "A"), 1, "status:  400 Bad Request, invalid_domain: ", `"invalid_domain"`},
		{"no such name", d.base + lookup("nope.example.com", "A"), 1, "status:  404 Not Found, transaction 0x", `"nxdomain"`},
		{"no address", "127.0.0.1:8402/v1/tools/ping", 2, "\n  make pay URL='http://127.0.0.1:8402/v1/tools/ping'\n", ""},
		{"nobody to ask", withKey + url, 1, "YES=1", ""},
		{"too dear", withKey + "-yes -max 0.004999 " + url, 1, "the price of 0.005 USDC on Base is above MAX=0.004999", ""},
		{"agreed to", withKey + "-yes -max 0.005 " + url, 0, "payer:   " + accountOfOne + " (the key in ", `"records": [`},
	} {
		out, notes, code := runPay(t, append([]string{"-dir", t.TempDir()}, strings.Fields(c.line)...)...)
		if code != c.code || !strings.Contains(notes, c.says) {
			t.Errorf("%s: exit status %d, want %d; stderr without %q:\n%s", c.name, code, c.code, c.says, notes)
		}
		checkPayOutput(t, out, c.body)
		moved := strings.Contains(notes, ", transaction 0x")
		checkPayReceipt(t, notes, moved)
		if moved {
			paid++
		}
		if n := strings.Count(notes, "\n"); n > 8 {
			t.Errorf("%s: %d lines on stderr, want 8 at most:\n%s", c.name, n, notes)
		}
	}
	is(t, "payments", paid, 4)
	is(t, "transfers", len(l.facilitator.Transfers()), paid)
	is(t, "transfers of the key's account", len(l.facilitator.Moved(strings.ToLower(accountOfOne))), 1)
}

// replayed holds an answer of make pay to the one that was stored.
func replayed(t testing.TB, what string, code int, out, notes, stored string) {
	t.Helper()
	is(t, what+": exit status", code, 0)
	is(t, what+": the stored answer", out, stored)
	mentions(t, what+": stderr", notes, "Idempotent-Replayed: true")
}

// checkPayReceipt: every answer that was paid for has a receipt that holds.
func checkPayReceipt(t *testing.T, notes string, paid bool) {
	t.Helper()
	if holds := strings.Count(notes, "\nreceipt: holds: signed by did:web:127.0.0.1%3A"); holds != strings.Count(notes, "\nreceipt: ") || holds > 0 != paid || holds > 1 {
		t.Errorf("%d receipts hold; paid: %v:\n%s", holds, paid, notes)
	}
}

// checkPayOutput: one JSON value on stdout, or nothing.
func checkPayOutput(t *testing.T, out, part string) {
	t.Helper()
	if part == "" {
		is(t, "stdout", out, "")
		return
	}
	d := json.NewDecoder(strings.NewReader(out))
	var v map[string]any
	if err := d.Decode(&v); err != nil || d.More() {
		t.Errorf("stdout is not one JSON object (%v): %s", err, out)
	}
	mentions(t, "stdout", out, part)
}

// runPay runs the client of make pay.
func runPay(t testing.TB, args ...string) (out, notes string, code int) {
	t.Helper()
	return runToEnd(t, exec.CommandContext(t.Context(), payBinary(t), args...))
}

// runToEnd runs a program to its end.
func runToEnd(t testing.TB, cmd *exec.Cmd) (out, notes string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}
