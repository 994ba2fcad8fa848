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

	"github.com/hostfacts/hostfacts/infra/testbed"
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
		{"paid", lookup("example.com", "MX"), 0, "status:  200 OK, transaction 0x", `"exchange": "mx1.example.com"`},
		{"ping", catalog.Ping().Path, 0, "price:   0.001 USDC on Base to 0x", `"ok": true`},
		{"bad parameters", lookup("localhost", "A"), 1, "status:  400 Bad Request, invalid_domain: ", `"invalid_domain"`},
		{"no such name", lookup("nope.example.com", "A"), 1, "status:  404 Not Found, transaction 0x", `"nxdomain"`},
		{"a free path", catalog.PathHealth, 1, "expected 402 Payment Required, got 200.\nIt is free.", ""},
		{"an unknown path", "/nope", 1, "expected 402 Payment Required, got 404:\nunknown_path: ", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, notes, code := runPay(t, d.base+c.path)
			is(t, "exit status", code, c.code)
			if !strings.Contains(notes, c.says) {
				t.Errorf("stderr lacks %q:\n%s", c.says, notes)
			}
			checkPayOutput(t, out, c.body)
			checkPayReceipt(t, notes, strings.Contains(notes, ", transaction 0x"))
			if n := strings.Count(notes, "\n"); n > 8 {
				t.Errorf("%d lines on stderr, want 8 at most:\n%s", n, notes)
			}
		})
	}
}

// TestPayPings: without a URL it pays for the ping of the local runner, shows the
// handshake when it is asked to, and sends the same again.
func TestPayPings(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := openLocal(t, l, l.setup())
	dir := t.TempDir()
	addr := strings.TrimPrefix(d.base, "http://")
	first, notes, code := runPayIn(t, []string{"LOCAL_ADDR=" + addr}, "-dir", dir)
	is(t, "exit status", code, 0)
	is(t, "lines on stderr", strings.Count(notes, "\n"), 5)
	checkPayOutput(t, first, `"ok": true`)
	checkPayReceipt(t, notes, true)
	if !strings.Contains(notes, "for "+d.base+catalog.Ping().Path+"\n") {
		t.Errorf("it did not ping:\n%s", notes)
	}
	l.secret(keptBy(t, dir).Signature)

	again, notes, code := runPayIn(t, nil, "-dir", dir, "-again", "1", "-v")
	is(t, "exit status", code, 0)
	is(t, "the stored answer", again, first)
	for _, want := range []string{"Idempotent-Replayed: true", "PAYMENT-SIGNATURE, decoded:", "PAYMENT-RESPONSE, decoded:", `"bazaar": {`} {
		if !strings.Contains(notes, want) {
			t.Errorf("stderr lacks %q:\n%s", want, notes)
		}
	}
	if strings.Contains(notes, `"$schema"`) || strings.Contains(notes, `"schema"`) {
		t.Errorf("stderr has a schema:\n%s", notes)
	}
	if n := len(l.facilitator.Transfers()); n != 1 {
		t.Errorf("money moved %d times", n)
	}
}

// TestPayRepeats sends the signature of an earlier payment, under its key and
// without one.
func TestPayRepeats(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := openLocal(t, l, l.setup())
	dir := t.TempDir()
	first, notes, code := runPayIn(t, nil, "-dir", dir, d.base+lookup("www.example.com", "A"))
	if code != 0 {
		t.Fatalf("exit status %d:\n%s", code, notes)
	}
	kept := keptBy(t, dir)
	l.secret(kept.Signature)
	if len(kept.Key) < 16 {
		t.Fatalf("the key %q was drawn", kept.Key)
	}
	for _, key := range []string{kept.Key, ""} {
		kept.Key = key
		raw, err := json.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "kept")
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		second, notes, code := runPayIn(t, nil, "-again", file)
		is(t, "exit status", code, 0)
		is(t, "the stored answer", second, first)
		checkPayReceipt(t, notes, true)
		if !strings.Contains(notes, "Idempotent-Replayed: true") {
			t.Errorf("stderr does not show the replay:\n%s", notes)
		}
	}
}

// TestPayWithKey pays with a key from a file, of an account that is known.
func TestPayWithKey(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := openLocal(t, l, l.setup())
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("0x"+strings.Repeat("0", 63)+"1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const account = "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf" // of the key 1
	url := d.base + lookup("example.com", "A")
	for _, c := range []struct {
		name string
		args []string
		says string
		paid bool
	}{
		{"nobody to ask", nil, "YES=1", false},
		{"too dear", []string{"-yes", "-max", "0.004999"}, "the price of 0.005 USDC on Base is above MAX=0.004999", false},
		{"agreed to", []string{"-yes", "-max", "0.005"}, "payer:   " + account + " (the key in ", true},
	} {
		out, notes, code := runPay(t, append(append([]string{"-key-file", file}, c.args...), url)...)
		if !strings.Contains(notes, c.says) || (code == 0) != c.paid || (out != "") != c.paid {
			t.Errorf("%s: exit status %d\n%s", c.name, code, notes)
		}
		checkPayReceipt(t, notes, c.paid)
	}
	is(t, "transfers of the key's account", len(l.facilitator.Moved(strings.ToLower(account))), 1)
	is(t, "transfers", len(l.facilitator.Transfers()), 1)
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
		addr := closedPort(t)
		out, notes, code := runPayIn(t, []string{"LOCAL_ADDR=" + addr})
		is(t, "exit status", code, 1)
		is(t, "stdout", out, "")
		if !strings.Contains(notes, "nobody answers on "+addr+". Is the service running? Start it with: make run") {
			t.Errorf("stderr: %s", notes)
		}
	})
	t.Run("no payment", func(t *testing.T) {
		t.Parallel()
		out, notes, code := runPay(t, "-again", "1")
		is(t, "exit status", code, 1)
		is(t, "stdout", out, "")
		if !strings.Contains(notes, "there is no payment in ") {
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
	if !strings.Contains(notes, "status:  503") || !strings.Contains(notes, "the same signature again in") {
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

// kept is a payment as make pay keeps it.
type kept struct {
	URL       string `json:"url"`
	Key       string `json:"idempotency_key"`
	Signature string `json:"payment_signature"`
}

// keptBy reads the only payment in a folder, which nobody else can read.
func keptBy(t testing.TB, dir string) (k kept) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("kept: %q, %v", files, err)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, files[0]: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v (%v), want %v", path, info.Mode().Perm(), err, mode)
		}
	}
	if err := testbed.ReadJSON(files[0], &k); err != nil {
		t.Fatal(err)
	}
	return k
}

// runPay runs the client of make pay, which keeps its payments where nobody looks.
func runPay(t testing.TB, args ...string) (out, notes string, code int) {
	t.Helper()
	return runPayIn(t, nil, append([]string{"-dir", t.TempDir()}, args...)...)
}

func runPayIn(t testing.TB, env []string, args ...string) (out, notes string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), payBinary(t), args...)
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}
