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

// reencode changes the JSON of a header.
func reencode(change func(string) string) func(string) string {
	return func(header string) string {
		raw, err := base64.StdEncoding.DecodeString(header)
		if err != nil {
			panic(err)
		}
		return base64.StdEncoding.EncodeToString([]byte(change(string(raw))))
	}
}

func replacing(old, other string) func(string) string {
	return reencode(func(s string) string {
		if !strings.Contains(s, old) {
			panic("the payment has no " + old + ": " + s)
		}
		return strings.Replace(s, old, other, 1)
	})
}

// dropping leaves a member out.
func dropping(member string) func(string) string {
	return reencode(func(s string) string {
		var o map[string]json.RawMessage
		if err := json.Unmarshal([]byte(s), &o); err != nil {
			panic(err)
		}
		delete(o, member)
		raw, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		return string(raw)
	})
}

// resign changes the bytes of the signature.
func resign(change func([]byte) []byte) func(string) string {
	return reencode(func(s string) string {
		var p x402.Payload
		if err := json.Unmarshal([]byte(s), &p); err != nil {
			panic(err)
		}
		b, err := hex.DecodeString(strings.TrimPrefix(p.Payload.Signature, "0x"))
		if err != nil {
			panic(err)
		}
		p.Payload.Signature = "0x" + hex.EncodeToString(change(b))
		raw, err := json.Marshal(p)
		if err != nil {
			panic(err)
		}
		return string(raw)
	})
}

func withV(v byte) func(string) string {
	return resign(func(b []byte) []byte { b[64] = v; return b })
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

// accepted changes a member of what the payer says he accepts.
func accepted(member, value string) func(*x402test.Draft) {
	return func(d *x402test.Draft) {
		var o map[string]any
		if err := json.Unmarshal(d.Payload.Accepted, &o); err != nil {
			panic(err)
		}
		o[member] = value
		raw, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		d.Payload.Accepted = raw
	}
}

// acceptedText replaces old by other in its JSON.
func acceptedText(d *x402test.Draft, other, old string) {
	if !strings.Contains(string(d.Payload.Accepted), old) {
		panic("accepted has no " + old)
	}
	d.Payload.Accepted = json.RawMessage(strings.Replace(string(d.Payload.Accepted), old, other, 1))
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
