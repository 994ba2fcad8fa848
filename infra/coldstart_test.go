package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// tripwire is an address that answers nothing and counts who comes, over TCP
// and UDP on one port.
type tripwire struct {
	addr    string
	touched atomic.Int64
}

func newTripwire(t *testing.T) *tripwire {
	t.Helper()
	l, c := samePort(t)
	w := &tripwire{addr: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.touched.Add(1)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		packet := make([]byte, 1500)
		for {
			if _, _, err := c.ReadFrom(packet); err != nil {
				return
			}
			w.touched.Add(1)
		}
	}()
	t.Cleanup(func() { _ = c.Close() })
	return w
}

// samePort listens on one port over TCP and UDP. A port that is free for one
// may be taken for the other.
func samePort(t *testing.T) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			return l, c
		}
		_ = l.Close()
	}
	t.Fatal("no port is free for both TCP and UDP")
	return nil, nil
}

// TestColdStartAsksNobody builds every function as it is deployed, configures it by the
// template, and sends it its event. A priced one answers its offer and a free one its
// document, and neither asks the table, the facilitator, the secret, the chain, a
// resolver or a registry.
func TestColdStartAsksNobody(t *testing.T) {
	t.Parallel()
	wire := newTripwire(t)
	params := testParams()
	maps.Copy(params, map[string]string{
		"FacilitatorUrl": "http://" + wire.addr, "FacilitatorSecretArn": testSecret, "RpcUrl": "http://" + wire.addr,
		"DnsResolvers": wire.addr, "RdapBootstrapUrl": "http://" + wire.addr, "LogLevel": "debug",
	})
	cfg, err := lambdahost.FromTemplate(templatePath, testbed.Functions(t), params, map[string]string{
		"AWS_ENDPOINT_URL_DYNAMODB": "http://" + wire.addr, "AWS_ENDPOINT_URL_SECRETS_MANAGER": "http://" + wire.addr,
	})
	if err != nil {
		t.Fatal(err)
	}
	logs := new(bytes.Buffer)
	cfg.Logs = logs
	host, err := lambdahost.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	for slug := range routesBySlug() {
		if slug == scheduled {
			continue // its work is to ask
		}
		event, err := os.ReadFile(filepath.Join("../events", slug+".json"))
		if err != nil {
			t.Fatal(err)
		}
		result, err := host.Call(t.Context(), logicalID(slug), event)
		if err != nil {
			t.Errorf("%s: %v", slug, err)
			continue
		}
		var resp events.APIGatewayV2HTTPResponse
		if err := json.Unmarshal(result.Payload, &resp); err != nil {
			t.Errorf("%s: %v", slug, err)
			continue
		}
		want := http.StatusOK
		if _, priced := catalog.BySlug(slug); priced {
			want = http.StatusPaymentRequired
			if resp.Headers["payment-required"] == "" {
				t.Errorf("%s: no PAYMENT-REQUIRED", slug)
			}
		}
		if body := plainBody(t, resp); resp.StatusCode != want || !json.Valid(body) {
			t.Errorf("%s: status %d, want %d: %.200s", slug, resp.StatusCode, want, body)
		}
		t.Logf("%s: init %v, first answer %v", slug, result.Init, result.First)
		if n := wire.touched.Swap(0); n != 0 {
			t.Errorf("%s asked somebody %d times before its first answer", slug, n)
		}
	}
	// The wire works: readiness does ask.
	ready, err := os.ReadFile("../events/" + slugHealth + ".json")
	if err != nil {
		t.Fatal(err)
	}
	ready = bytes.ReplaceAll(ready, []byte(catalog.PathHealth), []byte(catalog.PathReady))
	if _, err := host.Call(t.Context(), logicalID(slugHealth), ready); err != nil || wire.touched.Load() == 0 {
		t.Errorf("nobody was asked for readiness: %v", err)
	}
	host.Close()
	if t.Failed() {
		t.Logf("the functions logged:\n%s", logs)
	}
}

// plainBody is the body of an answer as a client of the gateway reads it.
func plainBody(t *testing.T, r events.APIGatewayV2HTTPResponse) []byte {
	t.Helper()
	if !r.IsBase64Encoded {
		return []byte(r.Body)
	}
	raw, err := base64.StdEncoding.DecodeString(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if r.Headers["content-encoding"] != "gzip" {
		return raw
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
