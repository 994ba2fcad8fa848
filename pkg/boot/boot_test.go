package boot

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

func env(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func good() map[string]string {
	return map[string]string{
		"PAY_TO": LocalPayTo, "LEDGER_TABLE": "ledger", "AWS_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s",
	}
}

func TestDefaults(t *testing.T) {
	c, err := readPriced(env(good()))
	if err != nil {
		t.Fatal(err)
	}
	if c.Terms.Network != "eip155:8453" || c.Terms.Name != "USD Coin" || c.Terms.Version != "2" || c.BaseURL != "" || c.FacilitatorURL != "" {
		t.Errorf("%+v", c)
	}
	if want := []string{"1.1.1.1:53", "8.8.8.8:53", "9.9.9.10:53"}; !slices.Equal(c.Resolvers, want) {
		t.Errorf("resolvers %v", c.Resolvers)
	}
}

// Every fault is reported at once, by the name of its variable.
func TestAllFaultsAtOnce(t *testing.T) {
	bad := map[string]string{
		"BASE_URL": "https://api.example.com/prod", "PAY_TO": "0x12", "NETWORK": "base", "USDC_ASSET": "usdc",
		"FACILITATOR_URL": "ftp://x", "FACILITATOR_KEY_ID": "id", "DNS_RESOLVERS": "dns.google", "LEDGER_TABLE": "a b",
		"LOG_LEVEL": "loud", "STACK_NAME": "my stack",
	}
	_, err := readPriced(env(bad))
	if err == nil {
		t.Fatal("no error")
	}
	for name := range bad {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the fault of %s is not reported in:\n%v", name, err)
		}
	}
	if !strings.Contains(err.Error(), "AWS_REGION is not set") {
		t.Errorf("a missing region is not reported in:\n%v", err)
	}
}

// What is right is taken as it was meant.
func TestAddressesAndOrigins(t *testing.T) {
	for _, payee := range []string{LocalPayTo, "0x209693bc6afc0c5328ba36faf03c514ef312287c", "0x209693BC6AFC0C5328BA36FAF03C514EF312287C"} {
		vars := good()
		vars["PAY_TO"] = payee
		if c, err := readPriced(env(vars)); err != nil || c.Terms.PayTo != payee {
			t.Errorf("%s: %v", payee, err)
		}
	}
	for value, want := range map[string]string{
		"https://API.example.com": "https://api.example.com", "https://api.example.com/": "https://api.example.com",
		"https://api.example.com#": "https://api.example.com", "https://api.example.com:8443": "https://api.example.com:8443",
		"https://192.0.2.1": "https://192.0.2.1", "http://127.0.0.1:8402": "http://127.0.0.1:8402", "http://[::1]:8402": "http://[::1]:8402",
	} {
		vars := good()
		vars["BASE_URL"] = value
		if c, err := readPriced(env(vars)); err != nil || c.BaseURL != want {
			t.Errorf("%s: %q, %v", value, c.BaseURL, err)
		}
	}
}

// Who takes real money to an address whose key is public is told.
func TestPublishedPayee(t *testing.T) {
	for _, c := range []struct {
		payee, endpoint string
		warned          bool
	}{
		{LocalPayTo, "", true},
		{strings.ToLower(LocalPayTo), "", true},
		{LocalPayTo, "http://127.0.0.1:8000", false},
		{"0x209693bc6afc0c5328ba36faf03c514ef312287c", "", false},
	} {
		vars := good()
		vars["PAY_TO"], vars["AWS_ENDPOINT_URL_DYNAMODB"] = c.payee, c.endpoint
		config, err := readPriced(env(vars))
		if err != nil || (config.Warnings["payee"] != "") != c.warned {
			t.Errorf("%s at %q: warnings %v, %v", c.payee, c.endpoint, config.Warnings, err)
		}
	}
}

func TestEachFault(t *testing.T) {
	for _, c := range []struct{ name, value, says string }{
		{"PAY_TO", "", "is not set"},
		{"LEDGER_TABLE", "", "is not set"},
		{"BASE_URL", "api.example.com", "must be an origin"},
		{"BASE_URL", "http://api.example.com", "must be https"},
		{"BASE_URL", "https://u:p@api.example.com", "must not have"},
		{"BASE_URL", "https://api.example.com/?x=1", "must not have"},
		{"FACILITATOR_URL", "facilitator.example.com", "must be an http or https URL"},
		{"FACILITATOR_KEY_SECRET", "x", "go together"},
		{"PAY_TO", "0x70997970C51812dc3A010C7d01b50e0d17dc79C9", "wrong checksum"},
		{"PAY_TO", "0x0000000000000000000000000000000000000000", "zero address"},
		{"PAY_TO", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", "token's contract"},
		{"USDC_ASSET", "0x833589FCD6eDb6E08f4c7C32D4f71b54bdA02914", "wrong checksum"},
		{"BASE_URL", "https://api.example.com?", "must not have"},
		{"BASE_URL", "https://*.example.com", "host name"},
		{"BASE_URL", "https://api.example.com:99999", "port"},
		{"BASE_URL", "https://api.example.com:", "host name"},
		{"STACK_NAME", "1-is-first", "a letter first"},
		{"DUPLICATE_WINDOW_SECONDS", "-1", "whole seconds from 0 to 86400"},
		{"DUPLICATE_WINDOW_SECONDS", "86401", "whole seconds from 0 to 86400"},
		{"DUPLICATE_WINDOW_SECONDS", "1.5", "whole seconds"},
		{"DUPLICATE_WINDOW_SECONDS", "45s", "whole seconds"},
	} {
		vars := good()
		vars[c.name] = c.value
		if _, err := readPriced(env(vars)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s=%q: %v, want %q", c.name, c.value, err, c.says)
		}
	}
	both := good()
	both["FACILITATOR_TOKEN"], both["FACILITATOR_KEY_ID"], both["FACILITATOR_KEY_SECRET"] = "t", "i", "s"
	if _, err := readPriced(env(both)); err == nil || !strings.Contains(err.Error(), "choose one") {
		t.Errorf("two kinds of credentials: %v", err)
	}
}

// Every function knows the window: those that sell keep to it, and the documents
// say it.
func TestDuplicateWindow(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{"": 45 * time.Second, "0": 0, "1": time.Second, " 90 ": 90 * time.Second, "86400": 24 * time.Hour} {
		vars := good()
		vars["DUPLICATE_WINDOW_SECONDS"] = value
		priced, err := readPriced(env(vars))
		if err != nil {
			t.Fatal(err)
		}
		documents, err := readDiscovery(env(vars))
		if err != nil {
			t.Fatal(err)
		}
		local, err := ReadLocal(env(vars))
		if err != nil {
			t.Fatal(err)
		}
		for who, c := range map[string]Config{"priced": priced, "discovery": documents, "local": local.Config} {
			if got := c.offering(nil).DuplicateWindow; got != want {
				t.Errorf("%s: %q is %v, want %v", who, value, got, want)
			}
		}
	}
}

// A fault never shows a secret.
func TestFaultsHideSecrets(t *testing.T) {
	vars := good()
	vars["FACILITATOR_TOKEN"], vars["FACILITATOR_KEY_ID"], vars["FACILITATOR_KEY_SECRET"] = "tok-secret", "id-secret", "key-secret"
	_, err := readPriced(env(vars))
	if err == nil || strings.Contains(err.Error(), "secret\n") || strings.Contains(err.Error(), "tok-secret") || strings.Contains(err.Error(), "key-secret") {
		t.Errorf("%v", err)
	}
}

// The documents need the ledger's table to count who asks for them, and nothing
// where nobody is counted.
func TestDiscoveryNeedsATableForItsLimit(t *testing.T) {
	vars := map[string]string{"PAY_TO": LocalPayTo}
	if _, err := readDiscovery(env(vars)); err == nil || !strings.Contains(err.Error(), "LEDGER_TABLE is not set") {
		t.Errorf("without a table: %v", err)
	}
	vars["RATE_LIMIT_PER_MINUTE"] = "0"
	if _, err := readDiscovery(env(vars)); err != nil {
		t.Error(err)
	}
	delete(vars, "RATE_LIMIT_PER_MINUTE")
	vars["LEDGER_TABLE"], vars["AWS_REGION"] = "ledger", "us-east-1"
	c, err := readDiscovery(env(vars))
	if err != nil || c.Limits.PerMinute != 300 || c.Ledger.Name != "ledger" {
		t.Errorf("%+v, %v", c.Limits, err)
	}
	if c.rate(&limit.Memory{}, time.Now) == nil {
		t.Error("nobody is counted")
	}
}

// Every character of a lease id is paid for with each call of its operation.
func TestLeaseIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		seen[leaseID()] = true
	}
	if len(seen) < 990 || len(leaseID()) != limit.IDLength {
		t.Errorf("%d different ids such as %q", len(seen), leaseID())
	}
}

func TestLocalNeedsNothing(t *testing.T) {
	l, err := ReadLocal(env(nil))
	if err != nil {
		t.Fatal(err)
	}
	if l.Addr != LocalAddr || l.BaseURL != "http://"+LocalAddr || l.LedgerFile != LocalLedgerFile || l.Terms.PayTo != LocalPayTo || l.Ledger.Name != "" {
		t.Errorf("%+v", l)
	}
}

// Nobody can call an address that stands for all of them.
func TestLocalOrigin(t *testing.T) {
	for addr, want := range map[string]string{
		":8410": "http://127.0.0.1:8410", "0.0.0.0:8410": "http://127.0.0.1:8410", "[::ffff:0.0.0.0]:8410": "http://127.0.0.1:8410",
		"[::]:8410": "http://[::1]:8410", "[::1]:8410": "http://[::1]:8410", "127.0.0.1:8410": "http://127.0.0.1:8410",
		"192.0.2.1:80": "http://192.0.2.1:80", "localhost:8410": "http://localhost:8410", "8410": "http://8410",
	} {
		l, err := ReadLocal(env(map[string]string{"LOCAL_ADDR": addr}))
		if err != nil || l.BaseURL != want || l.Addr != addr {
			t.Errorf("LOCAL_ADDR %s: it calls itself %s on %s, want %s (%v)", addr, l.BaseURL, l.Addr, want, err)
		}
	}
}

// The origin is configuration, or the platform's word; never the Host header
// of a client. On Lambda r.Host is the gateway's domain name.
func TestOrigin(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = "abc.execute-api.us-east-1.amazonaws.com"
	if got := (Config{}).origin(r); got != "https://abc.execute-api.us-east-1.amazonaws.com" {
		t.Error(got)
	}
	if got := (Config{BaseURL: "https://api.example.com"}).origin(r); got != "https://api.example.com" {
		t.Error(got)
	}
	vars := good()
	vars["BASE_URL"] = "https://API.example.com/"
	if c, err := readPriced(env(vars)); err != nil || c.BaseURL != "https://api.example.com" {
		t.Errorf("%q, %v", c.BaseURL, err)
	}
}

func TestRandomID(t *testing.T) {
	a, b := randomID(), randomID()
	if len(a) != 32 || a == b {
		t.Errorf("%q, %q", a, b)
	}
}

// Whatever logger the service is wired with, what a peer wrote is bounded in it
// and steers no terminal.
func TestPeersInTheLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	config := Config{
		Terms:          x402.Terms{Asset: defaultAsset, PayTo: LocalPayTo},
		FacilitatorURL: "https://facilitator.example", Resolvers: []string{"127.0.0.1:53"}}
	priced, err := config.Parts(Stores{Ledger: &ledgertest.Memory{}, Limits: &limit.Memory{}}, log, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	reconcile, err := config.Reconciling(&ledgertest.Memory{}, &ledgertest.Memory{}, log, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*slog.Logger{"priced": priced.Platform.Log, "documents": Config{}.platform(log, time.Now).Log, "reconcile": reconcile.Platform.Log} {
		out.Reset()
		l.Warn("m", "error", errors.New("\u009b2J\u202e"+strings.Repeat("\x01", 64000)))
		if line := out.String(); out.Len() > 1024 || !strings.Contains(line, `"?2J??`) {
			t.Errorf("%s: %d bytes: %.200s", name, out.Len(), line)
		}
	}
}

// Lambda reads the level and the time of a line under these names; without
// them it makes up its own.
func TestLogLine(t *testing.T) {
	var out bytes.Buffer
	Config{LogLevel: slog.LevelDebug}.Logger(&out).Debug("m", slog.Group("g", slog.String("time", "kept")))
	var line struct {
		Timestamp, Level, Msg string
		Time                  any
		G                     struct{ Time string }
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse(time.RFC3339, line.Timestamp); err != nil || line.Time != nil {
		t.Errorf("time %v: %v", line.Time, err)
	}
	if line.Level != "DEBUG" || line.Msg != "m" || line.G.Time != "kept" {
		t.Errorf("%s", &out)
	}
}
