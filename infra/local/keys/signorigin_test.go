package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// The vector was made outside this code base: key 1, a bare origin.
const (
	vectorKey    = "0000000000000000000000000000000000000000000000000000000000000001"
	vectorOrigin = "https://api.example.com"
	vectorPayee  = "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf"
	vectorProof  = "0x0541d3571eb64b761bbc93345b0e9c1b825bf1e70b988d8205e39a67c6df6b286c2893c5c3adfdf6528d1c64f1a5287f53e6cebf58bfb94fb3d20240fdb535841c"
)

func reads(key string) func() ([]byte, error) {
	return func() ([]byte, error) { return []byte(key), nil }
}

func TestVector(t *testing.T) {
	for _, origin := range []string{vectorOrigin, "HTTPS://API.Example.COM", "https://api.example.com/", "https://api.example.com:443", " https://api.example.com:0443/\n"} {
		for _, key := range []string{vectorKey, "0x" + vectorKey + "\n", "  " + vectorKey + "\r\n"} {
			var out, notes bytes.Buffer
			if err := signOrigin(origin, vectorPayee, reads(key), &out, &notes); err != nil {
				t.Fatalf("%s: %v", origin, err)
			}
			if got, want := out.String(), "OWNERSHIP_PROOFS="+vectorProof+"\n"; got != want {
				t.Errorf("%s: %s, want %s", origin, got, want)
			}
			for _, want := range []string{vectorOrigin + "\n", "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf", "BASE_URL=" + vectorOrigin + "\n"} {
				if !strings.Contains(notes.String(), want) {
					t.Errorf("%s: the notes lack %q: %s", origin, want, notes.String())
				}
			}
			if strings.Contains(notes.String(), "WARNING") {
				t.Errorf("warned without a reason: %s", notes.String())
			}
		}
	}
}

// TestRoundTrip signs origins of every form and checks them as the service
// does; the proof must hold for that origin alone.
func TestRoundTrip(t *testing.T) {
	const key = "4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318"
	secret, err := parseKey([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	payee := x402.KeyAddress(secret.PubKey()).String()
	for in, want := range map[string]string{
		"https://hostfacts.example.org":             "https://hostfacts.example.org",
		"https://api.example.com:8443/":             "https://api.example.com:8443",
		"https://API.EXAMPLE.com:08443":             "https://api.example.com:8443",
		"https://xn--bcher-kva.example":             "https://xn--bcher-kva.example",
		"https://a.execute-api.eu-1.amazonaws.com/": "https://a.execute-api.eu-1.amazonaws.com",
	} {
		var out, notes bytes.Buffer
		if err := signOrigin(in, "", reads(key), &out, &notes); err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		proof := strings.TrimSuffix(strings.TrimPrefix(out.String(), "OWNERSHIP_PROOFS="), "\n")
		if err := x402.CheckOrigin(want, proof, payee); err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if x402.CheckOrigin(want+"/", proof, payee) == nil || x402.CheckOrigin("https://other.example.com", proof, payee) == nil {
			t.Errorf("%s: the proof holds for another origin", in)
		}
	}
}

func TestWarnsAboutAnotherPayee(t *testing.T) {
	var out, notes bytes.Buffer
	const other = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	if err := signOrigin(vectorOrigin, other, reads(vectorKey), &out, &notes); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(notes.String(), "WARNING") || !strings.Contains(notes.String(), other) || out.Len() == 0 {
		t.Errorf("%s%s", notes.String(), out.String())
	}
}

func TestRefusesOrigins(t *testing.T) {
	asked := false
	key := func() ([]byte, error) { asked = true; return nil, errors.New("asked") }
	for _, origin := range []string{
		"", "api.example.com", "http://api.example.com", "https://", "https://api.example.com/prod", "https://api.example.com?x", "https://api.example.com/?",
		"https://api.example.com#", "https://api.example.com/#x", "https://me@api.example.com", "https://api.example.com:", "https://api.example.com:0",
		"https://api.example.com:65536", "https://api.example.com.", "https://localhost", "https://127.0.0.1", "https://[::1]", "https://127.1", "https://a.0x7f",
		"https://-a.example.com", "https://a-.example.com", "https://a..example.com", "https://b\u00fccher.example", "https://a_b.example.com", "https://ex ample.com",
		"https://" + strings.Repeat("a", 64) + ".example.com", "https://" + strings.Repeat("a.", 126) + "com", "ftp://api.example.com", "https:api.example.com", "https://%61pi.example.com\x00",
	} {
		var out, notes bytes.Buffer
		if err := signOrigin(origin, "", key, &out, &notes); err == nil || out.Len() != 0 || !strings.HasPrefix(err.Error(), "ORIGIN: ") {
			t.Errorf("%q: %v, %s", origin, err, out.String())
		}
	}
	if err := signOrigin(vectorOrigin, "0x12", key, &bytes.Buffer{}, &bytes.Buffer{}); err == nil || !strings.HasPrefix(err.Error(), "PAY_TO: ") {
		t.Errorf("a payee that is no address: %v", err)
	}
	if asked {
		t.Error("the key was asked for before the origin was in order")
	}
}

func TestRefusesKeysWithoutShowingThem(t *testing.T) {
	const order = "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"
	for name, key := range map[string]string{
		"empty": "", "short": vectorKey[2:], "long": vectorKey + "00", "odd": vectorKey[1:], "zero": strings.Repeat("0", 64), "order": order,
		"not hex": "zz" + vectorKey[2:], "two lines": vectorKey + "\n" + vectorKey, "twice 0x": "0x0x" + vectorKey[4:],
	} {
		var out, notes bytes.Buffer
		err := signOrigin(vectorOrigin, "", reads(key), &out, &notes)
		if err == nil || out.Len() != 0 {
			t.Errorf("%s: %v, %s", name, err, out.String())
			continue
		}
		if key != "" && strings.Contains(err.Error()+notes.String(), key[:8]) {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
	if err := signOrigin(vectorOrigin, "", func() ([]byte, error) { return nil, errors.New("closed") }, &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
		t.Error("signed without a key")
	}
}

// asCommand makes this test binary the command.
const asCommand = "KEYS_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// command is the program itself, to sign an origin.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, append([]string{"sign-origin"}, args...)...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd
}

// TestCommand runs the program itself: the key by standard input and by file,
// never as an argument.
func TestCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(vectorKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "key")
	if err := errors.Join(os.WriteFile(open, []byte(vectorKey+"\n"), 0o600), os.Chmod(open, 0o644)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args  []string
		stdin string
		want  string // on stdout; empty: it must fail
	}{
		"stdin":          {[]string{"-origin", vectorOrigin}, "0x" + vectorKey + "\n", "OWNERSHIP_PROOFS=" + vectorProof + "\n"},
		"file":           {[]string{"-origin", vectorOrigin, "-key-file", file}, "", "OWNERSHIP_PROOFS=" + vectorProof + "\n"},
		"no file":        {[]string{"-origin", vectorOrigin, "-key-file", file + "x"}, "", ""},
		"open to others": {[]string{"-origin", vectorOrigin, "-key-file", open}, "", ""},
		"empty stdin":    {[]string{"-origin", vectorOrigin}, "", ""},
		"no origin":      {nil, vectorKey, ""},
		"key as extra":   {[]string{"-origin", vectorOrigin, vectorKey}, "", ""},
		"endless stdin":  {[]string{"-origin", vectorOrigin}, strings.Repeat(vectorKey, 1000), ""},
	} {
		cmd := command(t, c.args...)
		cmd.Stdin = strings.NewReader(c.stdin)
		out, err := cmd.Output()
		if string(out) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, out, err, c.want)
		}
	}
}
