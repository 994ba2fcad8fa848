// A seller as one writes it in an afternoon: it verifies, answers and settles, and keeps no
// record. It is what make demo and the tests of the judge put beside a seller with a ledger.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

func main() {
	terms := x402.USDC()
	terms.PayTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	asked := terms.Requirements("10000")
	http.HandleFunc("GET /weather", func(w http.ResponseWriter, r *http.Request) {
		payment, _ := base64.StdEncoding.DecodeString(r.Header.Get(x402.HeaderSignature))
		if !agrees("/verify", payment, asked) || !agrees("/settle", payment, asked) {
			offer, _ := x402.EncodeHeader(x402.PaymentRequired{X402Version: x402.Version, Accepts: []x402.Requirements{asked}})
			w.Header().Set(x402.HeaderRequired, offer)
			w.WriteHeader(http.StatusPaymentRequired)
			return
		}
		fmt.Fprintln(w, "fair")
	})
	log.Fatal(http.ListenAndServe(os.Getenv("ADDR"), nil)) //nolint:gosec // an afternoon
}

// agrees asks the facilitator.
func agrees(path string, payment json.RawMessage, asked x402.Requirements) bool {
	body, _ := json.Marshal(map[string]any{"x402Version": x402.Version, "paymentPayload": payment, "paymentRequirements": asked})
	res, err := http.Post(os.Getenv("FACILITATOR_URL")+path, "application/json", bytes.NewReader(body)) //nolint:gosec,noctx // an afternoon
	if err != nil {
		return false
	}
	defer res.Body.Close()
	var said struct{ IsValid, Success bool }
	return json.NewDecoder(res.Body).Decode(&said) == nil && (said.IsValid || said.Success)
}
