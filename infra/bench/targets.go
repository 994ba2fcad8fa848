package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/mcp/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// buyer signs payments with a new key.
type buyer struct{ x402test.Client }

func newBuyer() buyer {
	return buyer{x402test.Client{HTTP: http.DefaultClient, Wallet: must(x402test.NewWallet(rand.Reader)), Now: time.Now}}
}

// payer is the buyer's account as the keys of the ledger have it.
func (b buyer) payer() string { return b.Wallet.Address().String() }

func challenges(s *server) target {
	return target{"challenge", s, func() []byte { return ping(s, "") }, http.StatusPaymentRequired, ""}
}

// payments pays a server for its ping, each time with a new signature. To the
// service each is another purchase, which its key says.
func (b buyer) payments(s *server) target {
	required := must(b.Challenge(context.Background(), s.origin+catalog.Ping().Path))
	return target{"paid ping", s, func() []byte {
		payment := must(b.Wallet.Pay(required, time.Now()))
		return ping(s, fmt.Sprintf("%s: %s\r\n%s: %s\r\n", x402.HeaderSignature, payment, x402.HeaderKey, rand.Text()))
	}, http.StatusOK, `"ok":true`}
}

func ping(s *server, headers string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\n%s\r\n", catalog.Ping().Path, s.host(), headers)
}

func calls(s *server) target {
	return target{"unpaid tools/call", s, func() []byte { return call(s, map[string]any{}) }, http.StatusOK, `"x402Version":2`}
}

func (b buyer) paidCalls(s *server) target {
	offer := must(mcptest.Call(context.Background(), &b.Client, s.origin+catalog.PathMCP, catalog.Ping().Tool, map[string]any{}, "", ""))
	required := must(offer.Required())
	return target{"paid tools/call", s, func() []byte {
		object := must(base64.StdEncoding.DecodeString(must(b.Wallet.Pay(required, time.Now()))))
		return call(s, map[string]any{mcp.KeyPayment: json.RawMessage(object), mcp.KeyPurchase: rand.Text()})
	}, http.StatusOK, `\"ok\":true`}
}

func call(s *server, meta map[string]any) []byte {
	body := must(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": mcp.MethodCall, "params": map[string]any{
		"name": catalog.Ping().Tool, "arguments": map[string]any{}, "_meta": meta,
	}}))
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s",
		catalog.PathMCP, s.host(), len(body), body)
}

// newFacilitator says yes to everything at once and moves nothing. What a real one
// takes is the same for every server, and would only hide how they differ.
func newFacilitator() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			PaymentPayload x402.Payload `json:"paymentPayload"`
		}
		_ = json.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(&asked) // every payer is believed
		payer, hash := asked.PaymentPayload.Payload.Authorization.From, make([]byte, 32)
		_, _ = rand.Read(hash) // never fails
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]map[string]any{ // the server may be gone
			"/supported": {
				"kinds":      []map[string]any{{"x402Version": x402.Version, "scheme": x402.Scheme, "network": network}},
				"extensions": []string{}, "signers": map[string]any{},
			},
			"/verify": {"isValid": true, "payer": payer},
			"/settle": {"success": true, "transaction": fmt.Sprintf("0x%x", hash), "network": network, "payer": payer},
		}[r.URL.Path])
	}))
}
