package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestPay runs the client of make pay against the local runner.
func TestPay(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := openLocal(t, l, l.setup())
	for _, c := range []struct {
		name, path string
		code       int
		says       string // on stderr
		body       string // on stdout, a part of it
	}{
		{"paid", lookup("example.com", "MX"), 0, "← 200 OK", `"exchange": "mx1.example.com"`},
		{"ping", catalog.Ping().Path, 0, `"transaction": "0x`, `"ok": true`},
		{"bad parameters", lookup("localhost", "A"), 1, "← 400 Bad Request", `"invalid_domain"`},
		{"no such name", lookup("nope.example.com", "A"), 1, "the answer is 404 Not Found", `"nxdomain"`},
		{"a free path", catalog.PathHealth, 1, "expected 402 Payment Required, got 200", ""},
		{"an unknown path", "/nope", 1, "expected 402 Payment Required, got 404", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, notes, code := runPay(t, d.base+c.path)
			is(t, "exit status", code, c.code)
			if !strings.Contains(notes, c.says) {
				t.Errorf("stderr lacks %q:\n%s", c.says, notes)
			}
			checkPayOutput(t, out, c.body)
			checkPayReceipt(t, notes, strings.Contains(notes, `"success": true`))
		})
	}
}

// TestPayRepeats sends the signature of an earlier payment.
func TestPayRepeats(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := openLocal(t, l, l.setup())
	first, notes, code := runPay(t, d.base+lookup("www.example.com", "A"))
	signature := regexp.MustCompile(`SIGNATURE='([^']+)'`).FindStringSubmatch(notes)
	if code != 0 || signature == nil {
		t.Fatalf("exit status %d, no signature to repeat:\n%s", code, notes)
	}
	l.secret(signature[1])
	key := regexp.MustCompile(` KEY='([^']+)' SIGNATURE=`).FindStringSubmatch(notes)
	if key == nil || len(key[1]) < 16 {
		t.Fatalf("no key to repeat it with:\n%s", notes)
	}
	for _, args := range [][]string{{"-key", key[1]}, nil} {
		second, notes, code := runPay(t, append(args, "-signature", signature[1], d.base+lookup("www.example.com", "A"))...)
		is(t, "exit status", code, 0)
		is(t, "the stored answer", second, first)
		checkPayReceipt(t, notes, true)
		if !strings.Contains(notes, "Idempotent-Replayed: true") {
			t.Errorf("stderr does not show the replay:\n%s", notes)
		}
	}
}

// TestPayWithoutService: whoever reads stderr learns what to do.
func TestPayWithoutService(t *testing.T) {
	t.Parallel()
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		out, notes, code := runPay(t, "http://"+closedPort(t)+catalog.Ping().Path)
		is(t, "exit status", code, 1)
		is(t, "stdout", out, "")
		if !strings.Contains(notes, "make run") {
			t.Errorf("stderr: %s", notes)
		}
	})
	t.Run("no URL", func(t *testing.T) {
		t.Parallel()
		out, notes, code := runPay(t)
		is(t, "exit status", code, 2)
		is(t, "stdout", out, "")
		if !strings.Contains(notes, "usage: make pay") {
			t.Errorf("stderr: %s", notes)
		}
	})
}

// TestPayAsksAgain: an uncertain settlement is not an answer; the same
// signature is sent until there is one.
func TestPayAsksAgain(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "waits until a payment in doubt may be asked for again")
	l := newLab(t)
	l.anybody(x402test.FailAfter)
	d := openLocal(t, l, l.setup())
	out, notes, code := runPay(t, d.base+catalog.Ping().Path)
	is(t, "exit status", code, 0)
	checkPayOutput(t, out, `"ok": true`)
	if !strings.Contains(notes, "← 503") || !strings.Contains(notes, "the same signature again in") {
		t.Errorf("stderr:\n%s", notes)
	}
	if n := len(l.facilitator.Transfers()); n != 1 {
		t.Errorf("money moved %d times", n)
	}
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
	if !strings.Contains(out, part) {
		t.Errorf("stdout lacks %s: %s", part, out)
	}
}

func runPay(t *testing.T, args ...string) (out, notes string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), payBinary(t), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}
