package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

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
