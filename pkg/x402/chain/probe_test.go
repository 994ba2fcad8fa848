package chain

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// public is the text of a Probe's error that a client may read.
func public(t *testing.T, err error) string {
	t.Helper()
	var f *fault.Error
	if err == nil {
		return ""
	}
	if !errors.As(err, &f) || f.Code != fault.PaymentUnavailable || errors.Unwrap(f) == nil {
		t.Fatalf("error = %v, want payment_unavailable with a cause", err)
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the error tells the URL's secret: %v", err)
	}
	return f.Public()
}

func TestProbe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.client.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	w.ahead = defaultHeadAge + time.Second
	if got := public(t, w.client.Probe(t.Context())); got != "the RPC node's latest block is not recent" {
		t.Errorf("stale: %q", got)
	}
	w.ahead = 0
	const broken = "the RPC node does not answer as it should"
	w.proxy.reset(func(rw http.ResponseWriter, c rpcCall, _ func([]byte) []byte) bool { return result(rw, c, "null") })
	if got := public(t, w.client.Probe(t.Context())); got != broken {
		t.Errorf("no latest block: %q", got)
	}
	now := w.Now(t)
	w.client.now = func() time.Time { return now }
	w.Kill()
	if got := public(t, w.client.Probe(t.Context())); got != broken {
		t.Errorf("dead: %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := public(t, w.client.Probe(ctx)); got != broken {
		t.Errorf("no time: %q", got)
	}
}

// The chain id is asked until it was right once.
func TestChainID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.client = w.coldClient(t, Config{})
	q := w.question(t, w.authorize(t))
	lie := func(id string) rule {
		return func(rw http.ResponseWriter, c rpcCall, _ func([]byte) []byte) bool {
			return c.Method == "eth_chainId" && result(rw, c, id)
		}
	}
	for range 2 {
		w.proxy.reset(lie(`"0x1"`))
		w.expectNothing(t, q, "node is on chain 1, must be on 8453")
		if got := public(t, w.client.Probe(t.Context())); got != "the RPC node is on another chain" {
			t.Errorf("probe: %q", got)
		}
		if calls := strings.Join(w.proxy.methods(), " "); calls != "eth_chainId eth_chainId" {
			t.Errorf("calls: %s", calls)
		}
	}
	for _, id := range []string{`null`, `8453`, `"8453"`, `"0x02105"`, `"0x"`, `"0x10000000000002105"`} {
		w.proxy.reset(lie(id))
		w.expectNothing(t, q, "chain id")
	}
	w.proxy.reset(nil)
	w.expect(t, q, open(reasonOpen), join([]string{"eth_chainId"}, callsOpen))
	w.expect(t, q, open(reasonOpen), callsOpen)
	w.proxy.reset(lie(`"0x1"`)) // not asked any more
	w.expect(t, q, open(reasonOpen), callsOpen)
}

// An asset that is no EIP-3009 token, or no contract, is no evidence.
func TestWrongAsset(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	q := w.question(t, w.authorize(t))
	for asset, why := range map[string]string{
		chaintest.Account(5):                         "authorization state is not 32 bytes in hex", // no contract
		"0x00000000000000000000000000000000000ba7c4": "node answered error",                        // another
	} {
		t.Run(asset, func(t *testing.T) {
			client := w.newClient(t, Config{})
			client.token = strings.ToLower(asset)
			w.client = client
			w.expectNothing(t, q, why)
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	good := Config{URL: "https://rpc.example/", Network: chaintest.Network, Asset: chaintest.USDC}
	if c, err := New(good); err != nil || c.maxCalls != defaultMaxCalls || c.headAge != defaultHeadAge || c.userAgent != "hostfacts" {
		t.Errorf("New = %+v, %v", c, err)
	}
	for name, spoil := range map[string]func(*Config){
		"no URL":         func(c *Config) { c.URL = "" },
		"a file":         func(c *Config) { c.URL = "file:///" + secret },
		"no host":        func(c *Config) { c.URL = "https:///" + secret },
		"no URL at all":  func(c *Config) { c.URL = "https://[" + secret },
		"fragment":       func(c *Config) { c.URL = "https://rpc.example/" + secret + "#x" },
		"too long":       func(c *Config) { c.URL = "https://rpc.example/" + strings.Repeat(secret, 300) },
		"network":        func(c *Config) { c.Network = "solana:1" },
		"asset":          func(c *Config) { c.Asset = "0x12" },
		"user agent":     func(c *Config) { c.UserAgent = "a\r\nb" },
		"long name":      func(c *Config) { c.UserAgent = strings.Repeat("a", 200) },
		"negative calls": func(c *Config) { c.MaxCalls = -1 },
		"negative age":   func(c *Config) { c.HeadAge = -time.Second },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}

// The client's own transport takes no proxy from the environment, and keeps
// nothing for long.
func TestTransport(t *testing.T) {
	t.Parallel()
	tr := newTransport()
	if tr.Proxy != nil || tr.IdleConnTimeout != 5*time.Second || !tr.DisableCompression || tr.Protocols.HTTP2() {
		t.Errorf("transport = %+v", tr)
	}
}
