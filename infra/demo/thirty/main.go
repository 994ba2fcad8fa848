// A seller in thirty lines, as anyone might write it in an evening: it asks the facilitator to
// settle, and answers if that succeeds. Like the sellers in most examples, it keeps no record of
// payments.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

func main() {
	terms := x402.USDC()
	terms.PayTo = os.Getenv("PAY_TO")
	price := terms.Requirements("5000")
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		payment, err := base64.StdEncoding.DecodeString(r.Header.Get(x402.HeaderSignature))
		if err != nil || !settlePayment(payment, price) {
			offer, _ := x402.EncodeHeader(x402.PaymentRequired{X402Version: x402.Version, Accepts: []x402.Requirements{price}})
			w.Header().Set(x402.HeaderRequired, offer)
			http.Error(w, "Please pay.", http.StatusPaymentRequired)
			return
		}
		fmt.Fprintln(w, "MX mx1.example.com")
	})
	listener, err := net.Listen("tcp", os.Getenv("LOCAL_ADDR"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("The seller is ready on http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}

// settlePayment asks the facilitator to move the money, and reports whether the facilitator
// did so. An empty payment cannot be encoded as JSON, so settlePayment does not send it.
func settlePayment(payment json.RawMessage, price x402.Requirements) bool {
	call, err := json.Marshal(map[string]any{"x402Version": x402.Version, "paymentPayload": payment, "paymentRequirements": price})
	if err != nil {
		return false
	}
	var settled x402.SettleResponse
	res, err := http.Post(os.Getenv("FACILITATOR_URL")+"/settle", "application/json", bytes.NewReader(call))
	return err == nil && json.NewDecoder(res.Body).Decode(&settled) == nil && settled.Success
}
