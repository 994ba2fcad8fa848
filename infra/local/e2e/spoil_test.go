package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// The ways to spoil a payment after it was signed. They panic on a header that
// is not what the wallet makes, which would be a fault of the suite.

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// reencode changes the JSON of a header.
func reencode(change func(string) string) func(string) string {
	return func(header string) string {
		raw := must(base64.StdEncoding.DecodeString(header))
		return base64.StdEncoding.EncodeToString([]byte(change(string(raw))))
	}
}

// resign changes the bytes of the signature.
func resign(change func([]byte) []byte) func(string) string {
	return reencode(func(s string) string {
		var p x402.Payload
		if err := json.Unmarshal([]byte(s), &p); err != nil {
			panic(err)
		}
		b := must(hex.DecodeString(strings.TrimPrefix(p.Payload.Signature, "0x")))
		p.Payload.Signature = "0x" + hex.EncodeToString(change(b))
		return string(must(json.Marshal(p)))
	})
}

// highS mirrors s to the other half of the curve's order: valid mathematics,
// and refused by the token.
func highS(header string) string {
	order, _ := new(big.Int).SetString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16)
	return resign(func(b []byte) []byte {
		s := new(big.Int).Sub(order, new(big.Int).SetBytes(b[32:64]))
		s.FillBytes(b[32:64])
		b[64] ^= 27 ^ 28
		return b
	})(header)
}

// flipSignature makes it one of another account.
func flipSignature(header string) string {
	return resign(func(b []byte) []byte { b[64] ^= 27 ^ 28; return b })(header)
}

// contractWallet replaces the signature by one that only the chain can judge.
func contractWallet(header string) string {
	return resign(func([]byte) []byte {
		return []byte(contractSignature + strings.Repeat(".", 100-len(contractSignature)))
	})(header)
}

// named gives the payment a name of the payer's own. The echo repeats the schema that
// was offered.
func named(d *x402test.Draft) {
	const extension = "payment-identifier"
	var echo map[string]json.RawMessage
	if err := json.Unmarshal(d.Payload.Extensions[extension], &echo); err != nil {
		panic(err)
	}
	echo["info"] = json.RawMessage(`{"required":false,"id":"e2e_identifier-1"}`)
	d.Payload.Extensions[extension] = must(json.Marshal(echo))
}

// strayBits sets bits in the last letter that belong to no byte: another
// spelling of the same payment.
func strayBits(header string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for !strings.HasSuffix(header, "==") {
		header = reencode(func(s string) string { return s + " " })(header)
	}
	last := len(header) - 3
	return header[:last] + string(alphabet[strings.IndexByte(alphabet, header[last])+1]) + header[last+1:]
}
