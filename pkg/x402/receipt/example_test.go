package receipt_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// A seller signs a receipt for an answer and publishes the key. Even years later, everybody
// who has the answer and the receipt can check that the seller gave the answer.
func Example() {
	// The seller signs.
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	published := []ed25519.PublicKey{public}
	signer, err := receipt.NewSigner(private, published)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer := []byte("fair in Oslo")
	signed, err := signer.Sign(receipt.Statement{
		IssuedAt:     time.Now().Unix(),
		Network:      "eip155:8453",
		Payer:        "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
		Request:      "GET /weather?city=Oslo",
		ResourceURL:  "https://shop.example/weather",
		ResponseHash: receipt.HashOf(answer),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	document, err := receipt.Document("shop.example", published) // served at receipt.Path
	if err != nil {
		fmt.Println(err)
		return
	}

	// The buyer, or anybody else, checks.
	find := func(kid string) (ed25519.PublicKey, error) { return receipt.FindKey(document, kid) }
	statement, kid, err := receipt.Verify(signed, find)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(statement.Request)
	fmt.Println("signed by the host that was paid:", receipt.Authorizes(kid, statement))
	fmt.Println("for this answer:", statement.Covers(answer))
	fmt.Println("for another answer:", statement.Covers([]byte("rain in Oslo")))
	// Output:
	// GET /weather?city=Oslo
	// signed by the host that was paid: true
	// for this answer: true
	// for another answer: false
}
