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

// In this example, a signed authorization is claimed, settled and answered. When the payer
// sends the authorization again, the ledger returns the stored answer. Package x402http does
// all of this for a handler; a seller only needs to open a store.
func Example() {
	ctx := context.Background()
	book := ledger.New(new(ledgertest.Memory), time.Now, rand.Text) // a real seller uses file.Open or dynamo.Open in place of Memory
	payment := ledger.Submission{
		Key:         ledger.Key("eip155:8453", "0xtoken", "0xpayer", "0xnonce"),
		AuthDigest:  "digest of what was signed",
		SigDigest:   "digest of the signature",
		Request:     "GET /weather?city=Oslo",
		Terms:       json.RawMessage(`{"amount":"10000"}`),
		ValidBefore: time.Now().Add(5 * time.Minute),
		Token:       "retry token of the challenge",
	}
	lease := time.Now().Add(30 * time.Second)
	first, err := book.Claim(ctx, payment, lease)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held:", first.Result == ledger.Held)

	second, err := book.Claim(ctx, payment, lease) // while the first attempt is under way
	fmt.Println("in flight:", second.Result == ledger.InFlight, err)

	// This is where the facilitator settles the payment. The handler begins to look up the
	// answer at once, so the hold keeps its lease.
	const begins = true
	receipt := ledger.Receipt{Transaction: "0xhash", Payer: "0xpayer", Network: "eip155:8453"}
	if err := first.Hold.Settled(ctx, receipt, begins); err != nil {
		fmt.Println(err)
		return
	}
	answer, err := book.NewAnswer(200, []byte("fair in Oslo"))
	if err != nil {
		fmt.Println(err)
		return
	}
	const validFor = time.Minute
	const unused = false // the lookup of this claim was run, so it counts
	if err := first.Hold.Redeem(ctx, answer, validFor, unused); err != nil {
		fmt.Println(err)
		return
	}

	third, err := book.Claim(ctx, payment, lease) // the payer did not get the answer and sends the payment again
	if err != nil {
		fmt.Println(err)
		return
	}
	body, err := third.Record.Answer.Plain()
	fmt.Println("answered:", third.Result == ledger.Answered, string(body), err)
	// Output:
	// held: true
	// in flight: true <nil>
	// answered: true fair in Oslo <nil>
}
