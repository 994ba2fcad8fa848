package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// nginx starts nginx with its default settings and a proxy_pass to a service, and returns the URL
// of nginx.
func nginx(t *testing.T, upstream string) string {
	t.Helper()
	program := testbed.Must(exec.LookPath("nginx"))
	dir, addr := t.TempDir(), testbed.FreeAddr(t)
	var paths strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&paths, "%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http { access_log off; %[2]s server { listen %[3]s; location / { proxy_pass %[4]s; } } }
`, dir, paths.String(), addr, upstream)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := testbed.Must(programs.Start(exec.Command(program, "-p", dir, "-e", "stderr", "-c", config)))
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Log(p.Log.String())
		}
	})
	if err := p.Listens(addr); err != nil {
		t.Fatal(err)
	}
	return "http://" + addr
}

// TestProxyAsInstalled checks that an nginx with default settings relays a payment. It must
// also relay the signed offers of every operation, to programs as well as to browsers.
func TestProxyAsInstalled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := openLocal(t, l, l.setup())
	base := nginx(t, d.base)
	client := testbed.NewClient(t, http.DefaultClient)
	ask := func(method, path string, headers ...string) http.Header {
		t.Helper()
		r := testbed.Must(testbed.Ask(t.Context(), client.HTTP, method, base+path, headers...))
		if r.Status != http.StatusPaymentRequired || r.Header.Get(x402.HeaderRequired) == "" {
			t.Errorf("%s %s through nginx: %d %.300s", method, path, r.Status, r.Body)
		}
		return r.Header
	}
	for _, op := range catalog.All() {
		path := op.ExampleURL("")
		ask(http.MethodGet, path, "Accept", "application/json")
		ask(http.MethodHead, path)
		ask(http.MethodGet, path, "Accept", "text/html,*/*;q=0.8")
		ask(http.MethodGet, path, "Origin", "https://other.example")
		required := testbed.Must(client.Challenge(t.Context(), base+path))
		if required.Extensions[x402.ExtensionReceipt] == nil {
			t.Errorf("%s: the offer in the header is not signed", op.Slug)
		}
	}
	path := catalog.DNS().ExampleURL("")
	required := testbed.Must(client.Challenge(t.Context(), base+path))
	payment := testbed.Must(client.Wallet.Pay(required, client.Now()))
	l.secrets.Add(payment)
	r := testbed.Must(client.Get(t.Context(), base+path, payment))
	if r.Status != http.StatusOK || r.Header.Get(x402.HeaderResponse) == "" {
		t.Errorf("a payment of %d bytes through nginx: %d %.300s", len(payment), r.Status, r.Body)
	}
}
