package ledger_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// examplePayment is a payment as the Gate claims it.
func examplePayment(request string) ledger.Payment {
	return ledger.Payment{
		Key:        ledger.Key("eip155:8453", "0xasset", "0xpayer", "0xnonce"),
		AuthDigest: "digest of the authorization", SigDigest: "digest of the signature",
		Request: request, Terms: json.RawMessage(`{"amount":"5000"}`),
		ValidBefore: time.Now().Add(5 * time.Minute),
		Proof:       ledger.Proof{Token: "digest of the retry token"},
	}
}

// A payment from its claim to its answer. While the first attempt holds the lease,
// a second one is told to wait; afterwards it gets the stored answer.
func ExampleLedger() {
	ctx, lease := context.Background(), time.Now().Add(30*time.Second)
	l := ledger.New(new(ledgertest.Memory), time.Now, rand.Text)
	p := examplePayment("GET /v1/tools/dns?domain=example.com")

	first, err := l.Claim(ctx, p, lease)
	fmt.Println(first.Standing == ledger.Held, first.Record.State, err)

	second, err := l.Claim(ctx, p, lease)
	fmt.Println(second.Standing == ledger.InFlight, err)

	// The facilitator has settled: record the receipt, then store the answer.
	err = first.Hold.Settled(ctx, ledger.Receipt{Transaction: "0xtransaction"}, true)
	fmt.Println(first.Hold.Record().State, err)
	answer, err := ledger.NewAnswer(200, []byte(`{"rcode":"NOERROR"}`))
	if err == nil {
		err = first.Hold.Redeem(ctx, answer)
	}
	fmt.Println(first.Hold.Record().State, err)

	again, err := l.Claim(ctx, p, lease)
	if err != nil {
		fmt.Println(err)
		return
	}
	body, err := again.Record.Answer.Plain()
	fmt.Println(again.Standing == ledger.Answered, string(body), err)

	other, err := l.Claim(ctx, examplePayment("GET /v1/tools/whois?domain=example.com"), lease)
	fmt.Println(other.Standing == ledger.OtherRequest, err)
	// Output:
	// true settling <nil>
	// true <nil>
	// settled <nil>
	// redeemed <nil>
	// true {"rcode":"NOERROR"} <nil>
	// true <nil>
}

// A settlement that was sent and not answered leaves the payment in doubt. A later
// refusal does not end the doubt; evidence does.
func ExampleHold_Uncertain() {
	ctx, lease := context.Background(), time.Now().Add(30*time.Second)
	l := ledger.New(new(ledgertest.Memory), time.Now, rand.Text)
	p := examplePayment("GET /v1/tools/dns?domain=example.com")

	c, err := l.Claim(ctx, p, lease)
	if err == nil {
		err = c.Hold.Uncertain(ctx, "timeout", "")
	}
	fmt.Println(c.Hold.Record().State, c.Hold.Record().Doubt, err)

	c, err = l.Claim(ctx, p, lease)
	if err == nil {
		err = c.Hold.Refused(ctx, "insufficient_funds")
	}
	fmt.Println(c.Hold.Record().State, c.Hold.Record().Doubt, err)

	// The reconciler takes the record, and finds the evidence on the chain.
	h, err := l.Reclaim(ctx, c.Hold.Record(), lease)
	if err == nil {
		err = h.Disproved(ctx, "the authorization was cancelled")
	}
	fmt.Println(h.Record().State, h.Record().Disproved, err)
	// Output:
	// uncertain true <nil>
	// uncertain true <nil>
	// refused true <nil>
}
