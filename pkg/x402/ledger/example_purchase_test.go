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

// A payer signs two payments for one purchase, for example because the answer to the first one
// got lost. Only the first is charged, and the second gets the same answer.
func ExampleLedger_OpenPurchase() {
	if err := buyTwice(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// the first may be sent: true
	// the second may be sent: false
	// the first has the answer: true
	// fair in Oslo
	// charged for the second: false
}

// buyTwice claims two payments for one purchase. It prints which payment may be sent, the
// answer, and whether the second payment is charged.
func buyTwice(ctx context.Context) error {
	book := ledger.New(new(ledgertest.Memory), time.Now, rand.Text)
	lease := time.Now().Add(30 * time.Second)
	signed := func(nonce string) ledger.Submission {
		return ledger.Submission{
			Key:         ledger.Key("eip155:8453", "0xtoken", "0xpayer", nonce),
			AuthDigest:  "digest of what was signed with " + nonce,
			SigDigest:   "digest of the signature of " + nonce,
			Request:     "GET /weather?city=Oslo",
			Purchase:    ledger.PurchaseKey("eip155:8453", "0xtoken", "0xpayer", ledger.RequestID("digest of the request")),
			Terms:       json.RawMessage(`{"amount":"10000"}`),
			ValidBefore: time.Now().Add(5 * time.Minute),
			Token:       "retry token of the challenge for " + nonce,
		}
	}

	first, err := book.Claim(ctx, signed("0xnonce1"), lease)
	if err != nil {
		return err
	}
	purchase, err := book.OpenPurchase(ctx, first.Hold)
	if err != nil {
		return err
	}
	fmt.Println("the first may be sent:", purchase.OwnedBy(first.Hold))
	const begins = true // the lookup begins at once, so the lease is kept
	receipt := ledger.Receipt{Transaction: "0xhash", Payer: "0xpayer", Network: "eip155:8453"}
	if err := first.Hold.Settled(ctx, receipt, begins); err != nil {
		return err
	}
	answer, err := book.NewAnswer(200, []byte("fair in Oslo"))
	if err != nil {
		return err
	}
	const validFor = time.Minute
	const unused = false // the lookup of this claim was run, so it counts
	if err := first.Hold.Redeem(ctx, answer, validFor, unused); err != nil {
		return err
	}

	second, err := book.Claim(ctx, signed("0xnonce2"), lease)
	if err != nil {
		return err
	}
	purchase, err = book.OpenPurchase(ctx, second.Hold)
	if err != nil {
		return err
	}
	fmt.Println("the second may be sent:", purchase.OwnedBy(second.Hold))
	owner, err := book.Owner(ctx, purchase)
	if err != nil {
		return err
	}
	ownership := book.Ownership(owner, ledger.View{Now: time.Now()})
	fmt.Println("the first has the answer:", ownership == ledger.OwnerAnswers)
	if err := second.Hold.Supersede(ctx, owner.Key); err != nil {
		return err
	}
	repeat, err := book.Resume(ctx, *owner, "", lease) // this is what a repeat of the first payment gets
	if err != nil {
		return err
	}
	body, err := repeat.Record.Answer.Plain()
	if err != nil {
		return err
	}
	fmt.Println(string(body))
	fmt.Println("charged for the second:", second.Hold.Record().Paid())
	return nil
}
