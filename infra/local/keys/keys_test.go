package main

import (
	"crypto/ed25519"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// These constants are a test vector from other software. The private key vectorKey is the
// number 1, and vectorPayee is the account of this key. vectorProof has the key's signature of
// vectorOrigin.
const (
	vectorKey    = "0000000000000000000000000000000000000000000000000000000000000001"
	vectorOrigin = "https://api.example.com"
	vectorPayee  = "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf"
	vectorProof  = "OWNERSHIP_PROOFS=0x0541d3571eb64b761bbc93345b0e9c1b825bf1e70b988d8205e39a67c6df6b286c2893c5c3adfdf6528d1c64f1a5287f53e6cebf58bfb94fb3d20240fdb535841c\n"
)

// TestReceiptKey runs receipt-key twice. Each run must print a new private key, and a list of
// public keys that begins with its public key. The second run gets the public key of the first
// run, and must print it after the new one. The notes must not show the private key.
func TestReceiptKey(t *testing.T) {
	t.Parallel()
	published := ""
	for n := 1; n <= 2; n++ {
		var out, notes strings.Builder
		code := run([]string{"receipt-key"}, func(string) string { return published }, &out, &notes)
		m := regexp.MustCompile(`^RECEIPT_KEY=(\S{43})\nRECEIPT_PUBLIC_KEYS=(\S{43})(,?)(\S*)\n$`).FindStringSubmatch(out.String())
		if code != 0 || m == nil || m[4] != published || strings.Contains(notes.String(), m[1]) || !strings.Contains(notes.String(), "RECEIPT_KEY signs receipts") {
			t.Fatalf("exit status %d, %q and %q", code, &out, &notes)
		}
		published = m[2] + m[3] + m[4]
		private, err := receipt.ParseKey(m[1])
		var keys []ed25519.PublicKey
		for text := range strings.SplitSeq(published, ",") {
			key, failed := receipt.ParsePublic(text)
			keys, err = append(keys, key), errors.Join(err, failed)
		}
		if _, failed := receipt.NewSigner(private, keys); errors.Join(err, failed) != nil || len(keys) != n {
			t.Errorf("%d keys, %v, %v", len(keys), err, failed)
		}
	}
}

// runSignOrigin calls signOrigin and returns what it prints.
func runSignOrigin(origin, payTo, key string) (out, notes string, err error) {
	var printed, noted strings.Builder
	err = signOrigin(origin, payTo, func() ([]byte, error) { return []byte(key), nil }, &printed, &noted)
	return printed.String(), noted.String(), err
}

// TestSignOrigin signs origins in several spellings. The signed origin must be the normalized
// one, and the service must accept the proof for that origin only. If PAY_TO is not the
// account of the key, the notes must warn.
func TestSignOrigin(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		vectorOrigin: vectorOrigin, "HTTPS://API.Example.COM": vectorOrigin, "https://api.example.com/": vectorOrigin,
		"https://api.example.com:443": vectorOrigin, " https://api.example.com:0443/\n": vectorOrigin,
		"https://API.EXAMPLE.com:08443/":            "https://api.example.com:8443",
		"https://xn--bcher-kva.example":             "https://xn--bcher-kva.example",
		"https://a.execute-api.eu-1.amazonaws.com/": "https://a.execute-api.eu-1.amazonaws.com",
	} {
		for _, key := range []string{vectorKey, "0x" + vectorKey + "\n", "  " + vectorKey + "\r\n"} {
			out, notes, err := runSignOrigin(typed, vectorPayee, key)
			proof := strings.TrimSuffix(strings.TrimPrefix(out, "OWNERSHIP_PROOFS="), "\n")
			if err != nil || x402.CheckOrigin(want, proof, vectorPayee) != nil || (out == vectorProof) != (want == vectorOrigin) ||
				x402.CheckOrigin(want+"/", proof, vectorPayee) == nil {
				t.Errorf("%s: %v, %s", typed, err, out)
			}
			for _, part := range []string{want + "\n", "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf", "BASE_URL=" + want + "\n"} {
				if !strings.Contains(notes, part) || strings.Contains(notes, "WARNING") {
					t.Errorf("%s: the notes lack %q, or warn: %s", typed, part, notes)
				}
			}
		}
	}
	const other = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	if out, notes, err := runSignOrigin(vectorOrigin, other, vectorKey); err != nil || out != vectorProof || !strings.Contains(notes, "WARNING    PAY_TO is "+other) {
		t.Errorf("another payee: %v, %s%s", err, notes, out)
	}
}

// TestRefusals checks that an invalid origin or payee is refused before the key is read. It
// also checks that an invalid key is refused, and that neither the error nor the notes show
// the key.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, origin := range []string{
		"", "api.example.com", "http://api.example.com", "https://", "https://api.example.com/prod", "https://api.example.com?x", "https://api.example.com/?",
		"https://api.example.com#", "https://api.example.com/#x", "https://me@api.example.com", "https://api.example.com:", "https://api.example.com:0",
		"https://api.example.com:65536", "https://api.example.com.", "https://localhost", "https://127.0.0.1", "https://[::1]", "https://127.1", "https://a.0x7f",
		"https://-a.example.com", "https://a-.example.com", "https://a..example.com", "https://b\u00fccher.example", "https://a_b.example.com", "https://ex ample.com",
		"https://" + strings.Repeat("a", 64) + ".example.com", "https://" + strings.Repeat("a.", 126) + "com", "https:api.example.com", "https://%61pi.example.com\x00",
	} {
		if out, _, err := runSignOrigin(origin, "", "no key"); err == nil || out != "" || !strings.HasPrefix(err.Error(), "ORIGIN: ") {
			t.Errorf("%q: %v, %s", origin, err, out)
		}
	}
	if _, _, err := runSignOrigin(vectorOrigin, "0x12", "no key"); err == nil || !strings.HasPrefix(err.Error(), "PAY_TO: ") {
		t.Errorf("a payee that is not an address: %v", err)
	}
	for name, key := range map[string]string{
		"empty": "", "short": vectorKey[2:], "long": vectorKey + "00", "odd": vectorKey[1:], "zero": strings.Repeat("0", 64),
		"the curve's order": "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141",
		"not hex":           "zz" + vectorKey[2:], "two lines": vectorKey + "\n" + vectorKey, "twice 0x": "0x0x" + vectorKey[4:],
	} {
		out, notes, err := runSignOrigin(vectorOrigin, "", key)
		if err == nil || out != "" || key != "" && strings.Contains(err.Error()+notes, key[:8]) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return testbed.Command(t, testbed.Program(t, "./infra/local/keys"), args...)
}

// TestCommand checks that the program takes the key from standard input or from a file that
// only its owner can access, but not from an argument. It also checks the exit statuses and
// messages for wrong command lines.
func TestCommand(t *testing.T) {
	file, open := filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "key")
	testbed.Check(errors.Join(os.WriteFile(file, []byte(vectorKey), 0o600), os.WriteFile(open, []byte(vectorKey), 0o600), os.Chmod(open, 0o644)))
	for name, c := range map[string]struct {
		args, stdin string
		code        int
		notes       string
	}{
		"stdin":          {"sign-origin -origin " + vectorOrigin, "0x" + vectorKey + "\n", 0, "signed by"},
		"file":           {"sign-origin -origin " + vectorOrigin + " -key-file " + file, "", 0, "signed by"},
		"no file":        {"sign-origin -origin " + vectorOrigin + " -key-file " + file + "x", "", exitFailed, "no such file"},
		"open to others": {"sign-origin -origin " + vectorOrigin + " -key-file " + open, "", exitFailed, "chmod 600"},
		"empty stdin":    {"sign-origin -origin " + vectorOrigin, "", exitFailed, "32 bytes of hex"},
		"endless stdin":  {"sign-origin -origin " + vectorOrigin, strings.Repeat(vectorKey, 1000), exitFailed, "32 bytes of hex"},
		"no origin":      {"sign-origin -pay-to 0x1", vectorKey, exitUsage, "make sign-origin ORIGIN="},
		"key as extra":   {"sign-origin -origin " + vectorOrigin + " " + vectorKey, "", exitUsage, "usage: "},
		"its help":       {"sign-origin -h", "", 0, "make sign-origin ORIGIN="},
		"no such flag":   {"sign-origin -x", "", exitUsage, "usage: "},
		"nothing":        {"", "", exitUsage, "usage: make receipt-key"},
		"another":        {"sign", "", exitUsage, "usage: make receipt-key"},
	} {
		var notes strings.Builder
		cmd := command(t, strings.Fields(c.args)...)
		cmd.Stdin, cmd.Stderr = strings.NewReader(c.stdin), &notes
		out, err := cmd.Output()
		want := map[bool]string{true: vectorProof}[c.notes == "signed by"]
		if string(out) != want || cmd.ProcessState.ExitCode() != c.code || !strings.Contains(notes.String(), c.notes) {
			t.Errorf("%s: %q, %v, %s", name, out, err, &notes)
		}
	}
}
