package simnet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
)

// agrees compares answers with what openssl and curl say about the same hosts.
func agrees(t *testing.T, n *internet, r *runner) {
	t.Run("with openssl", func(t *testing.T) {
		need(t, "openssl")
		for _, name := range []string{"example.com", "expired.example.com", "future.example.com", "stranger.example.com", "nosans.example.com", "tls12.example.com"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				agreesWithOpenSSL(t, n, r, name)
			})
		}
	})
	t.Run("with curl", func(t *testing.T) {
		need(t, "curl")
		for _, name := range []string{"example.com", "headers.example.com", "none.example.com", "there.example.com", "http503.example.com", "expired.example.com"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				agreesWithCurl(t, n, r, name)
			})
		}
	})
}

func need(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skip(tool + " is not installed")
	}
}

// lookUp pays for an answer and decodes it.
func lookUp(t *testing.T, r *runner, op catalog.Operation, name string, into any) {
	t.Helper()
	reply, err := r.buy(t.Context(), op.Path+"?domain="+name)
	if err != nil || reply.Status != http.StatusOK {
		t.Fatalf("%d %v: %.300s", reply.Status, err, reply.Body)
	}
	if err := json.Unmarshal(reply.Body, into); err != nil {
		t.Fatal(err)
	}
}

// run is a tool's output; it ends within the test's patience.
func run(t *testing.T, stdin string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return string(out)
}

func agreesWithOpenSSL(t *testing.T, n *internet, r *runner, name string) {
	t.Helper()
	var got ssl.Result
	lookUp(t, r, catalog.SSLCheck(), name, &got)
	chain := run(t, "", "openssl", "s_client", "-connect", n.hosts[name].addrs[0]+":443", "-servername", name)
	printed := run(t, chain, "openssl", "x509", "-noout", "-serial", "-subject", "-issuer", "-startdate", "-enddate", "-fingerprint", "-sha256", "-nameopt", "RFC2253")
	says := map[string]string{}
	for line := range strings.Lines(printed) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		says[strings.ToLower(key)] = strings.TrimSpace(value)
	}
	for _, c := range []struct{ what, got, openssl string }{
		{"serial", got.Serial, strings.ToLower(says["serial"])},
		{"subject", got.Subject, says["subject"]},
		{"issuer", got.Issuer, says["issuer"]},
		{"not_before", got.NotBefore, isoDate(t, says["notbefore"])},
		{"not_after", got.NotAfter, isoDate(t, says["notafter"])},
		{"fingerprint_sha256", got.FingerprintSHA256, strings.ToLower(strings.ReplaceAll(says["sha256 fingerprint"], ":", ""))},
	} {
		if c.got != c.openssl || c.got == "" {
			t.Errorf("%s is %q, openssl says %q", c.what, c.got, c.openssl)
		}
	}
}

// isoDate reads the form in which openssl prints times.
func isoDate(t *testing.T, s string) string {
	t.Helper()
	at, err := time.Parse("Jan _2 15:04:05 2006 MST", s)
	if err != nil {
		t.Fatal(err)
	}
	return at.Format("2006-01-02T15:04:05Z")
}

// agreesWithCurl compares status and headers. Where a header came twice, the
// answer joins or takes the first, and its bytes outside ASCII become UTF-8:
// such are left to the table.
func agreesWithCurl(t *testing.T, n *internet, r *runner, name string) {
	t.Helper()
	var got headers.Result
	lookUp(t, r, catalog.Headers(), name, &got)
	address := n.hosts[name].addrs[0]
	printed := run(t, "", "curl", "-sSkI", "--max-time", "20", "--http1.1", "--resolve", name+":443:"+address, "https://"+name+"/")
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(printed)), &http.Request{Method: http.MethodHead})
	if err != nil {
		t.Fatalf("%v: %q", err, printed)
	}
	defer res.Body.Close()
	if got.Status != res.StatusCode || got.PeerIP != address {
		t.Errorf("status %d from %s, curl says %d from %s", got.Status, got.PeerIP, res.StatusCode, address)
	}
	b, err := json.Marshal(got.Headers)
	if err != nil {
		t.Fatal(err)
	}
	var ours map[string]*string
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&ours); err != nil {
		t.Fatal(err)
	}
	for key, value := range ours {
		theirs := res.Header.Values(key)
		switch {
		case len(theirs) == 0 && value != nil:
			t.Errorf("%s is %q, curl has none", key, *value)
		case len(theirs) > 0 && value == nil:
			t.Errorf("%s is null, curl says %q", key, theirs)
		case len(theirs) == 1 && key != "server" && *value != theirs[0]:
			t.Errorf("%s is %q, curl says %q", key, *value, theirs[0])
		}
	}
}
