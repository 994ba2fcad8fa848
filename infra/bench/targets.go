package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// buyer signs payments with a key of its own.
type buyer struct{ wallet *x402test.Wallet }

func newBuyer() (buyer, error) {
	w, err := x402test.NewWallet(rand.Reader)
	return buyer{w}, err
}

// payer is the buyer's account as the keys of the ledger have it.
func (b buyer) payer() string { return b.wallet.Address().String() }

// payment is a header that pays what was offered, and has not been sent yet.
func (b buyer) payment(required x402.PaymentRequired) (string, error) {
	return b.wallet.Pay(required, time.Now())
}

// challenges asks a server for its ping without a payment.
func challenges(s *server) target {
	return target{
		name: "challenge", server: s,
		make:  func(ctx context.Context) (*http.Request, error) { return ping(ctx, s, "") },
		check: wants(http.StatusPaymentRequired, nil),
	}
}

// payments pays a server for its ping, each time with a new signature. To the
// service each is a purchase of its own, which its key says.
func (b buyer) payments(ctx context.Context, s *server) (target, error) {
	client := x402test.Client{HTTP: http.DefaultClient, Wallet: b.wallet, Now: time.Now}
	required, err := client.Challenge(ctx, s.origin+catalog.Ping().Path)
	if err != nil {
		return target{}, err
	}
	return target{
		name: "paid ping", server: s,
		make: func(ctx context.Context) (*http.Request, error) {
			header, err := b.payment(required)
			if err != nil {
				return nil, err
			}
			return ping(ctx, s, header)
		},
		check: wants(http.StatusOK, []byte(`"ok":true`)),
	}, nil
}

func ping(ctx context.Context, s *server, payment string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.origin+catalog.Ping().Path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	if payment != "" {
		r.Header.Set(x402.HeaderSignature, payment)
		r.Header.Set(x402.HeaderKey, rand.Text())
	}
	return r, nil
}

// calls is challenges over the Model Context Protocol.
func calls(s *server) target {
	return target{
		name: "unpaid tools/call", server: s,
		make:  func(ctx context.Context) (*http.Request, error) { return call(ctx, s, "") },
		check: wants(http.StatusOK, []byte(`"x402Version":2`)),
	}
}

// paidCalls is payments over the Model Context Protocol.
func (b buyer) paidCalls(ctx context.Context, s *server) (target, error) {
	client := x402test.Client{HTTP: http.DefaultClient, Wallet: b.wallet, Now: time.Now}
	offer, err := client.Call(ctx, s.origin+catalog.PathMCP, catalog.Ping().Tool, map[string]any{}, "", "")
	if err != nil {
		return target{}, err
	}
	required, err := offer.Required()
	if err != nil {
		return target{}, err
	}
	return target{
		name: "paid tools/call", server: s,
		make: func(ctx context.Context) (*http.Request, error) {
			header, err := b.payment(required)
			if err != nil {
				return nil, err
			}
			return call(ctx, s, header)
		},
		check: wants(http.StatusOK, []byte(`\"ok\":true`)),
	}, nil
}

func call(ctx context.Context, s *server, payment string) (*http.Request, error) {
	meta := map[string]any{}
	if payment != "" {
		object, err := base64.StdEncoding.DecodeString(payment)
		if err != nil {
			return nil, err
		}
		meta[mcp.KeyPayment], meta[mcp.KeyPurchase] = json.RawMessage(object), rand.Text()
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": mcp.MethodCall, "params": map[string]any{
		"name": catalog.Ping().Tool, "arguments": map[string]any{}, "_meta": meta,
	}})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.origin+catalog.PathMCP, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	return r, nil
}

// wants holds an answer to a status and to a part of its body.
func wants(status int, part []byte) func(int, []byte) error {
	return func(got int, body []byte) error {
		if got != status || !bytes.Contains(body, part) {
			return errors.New(clip(fmt.Sprintf("status %d, want %d with %s: %s", got, status, part, body)))
		}
		return nil
	}
}

func clip(s string) string { return s[:min(len(s), 400)] }

// newFacilitator says yes to everything at once and moves nothing. What a real one
// takes is the same for every server, and would only hide how they differ.
func newFacilitator() *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /supported", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]any{
			"kinds":      []map[string]any{{"x402Version": x402.Version, "scheme": x402.Scheme, "network": network}},
			"extensions": []string{}, "signers": map[string]any{},
		})
	})
	mux.HandleFunc("POST /verify", func(w http.ResponseWriter, r *http.Request) {
		if payer, ok := payerOf(w, r); ok {
			writeJSON(w, map[string]any{"isValid": true, "payer": payer})
		}
	})
	mux.HandleFunc("POST /settle", func(w http.ResponseWriter, r *http.Request) {
		if payer, ok := payerOf(w, r); ok {
			var hash [32]byte
			_, _ = rand.Read(hash[:]) // never fails
			writeJSON(w, map[string]any{"success": true, "transaction": "0x" + hex.EncodeToString(hash[:]), "network": network, "payer": payer})
		}
	})
	return httptest.NewServer(mux)
}

// payerOf reads who pays.
func payerOf(w http.ResponseWriter, r *http.Request) (string, bool) {
	var asked struct {
		PaymentPayload struct {
			Payload struct {
				Authorization struct{ From string } `json:"authorization"`
			} `json:"payload"`
		} `json:"paymentPayload"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(&asked); err != nil {
		http.Error(w, "not a payment", http.StatusBadRequest)
		return "", false
	}
	return asked.PaymentPayload.Payload.Authorization.From, true
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
