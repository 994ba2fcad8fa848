package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"strconv"
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

func replacing(old, other string) func(string) string {
	return reencode(func(s string) string { return replaced(s, old, other) })
}

// replaced is a text with its first old replaced, which must be there.
func replaced(s, old, other string) string {
	if !strings.Contains(s, old) {
		panic("there is no " + old + " in " + s)
	}
	return strings.Replace(s, old, other, 1)
}

// inside replaces a member of an object within the payment by raw JSON; empty leaves
// it out.
func inside(path []string, member, raw string) func(string) string {
	return reencode(func(s string) string { return string(edited(json.RawMessage(s), path, member, raw)) })
}

// edited replaces a member, which must be there, of an object within JSON.
func edited(o json.RawMessage, path []string, member, raw string) json.RawMessage {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(o, &m); err != nil {
		panic(err)
	}
	_, there := m[member]
	switch {
	case len(path) > 0:
		m[path[0]] = edited(m[path[0]], path[1:], member, raw)
	case !there:
		panic("there is no " + member + " in " + string(o))
	case raw == "":
		delete(m, member)
	default:
		m[member] = json.RawMessage(raw)
	}
	return must(json.Marshal(m))
}

// dropping leaves a member out.
func dropping(member string) func(string) string { return inside(nil, member, "") }

// authorization replaces a member of the authorization by raw JSON, after it
// was signed.
func authorization(member, raw string) func(string) string {
	return inside([]string{"payload", "authorization"}, member, raw)
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

// accepted changes a text of what the payer says he accepts.
func accepted(member, value string) func(*x402test.Draft) {
	return func(d *x402test.Draft) {
		d.Payload.Accepted = edited(d.Payload.Accepted, nil, member, strconv.Quote(value))
	}
}

// acceptedText replaces old by other in its JSON.
func acceptedText(d *x402test.Draft, other, old string) {
	d.Payload.Accepted = json.RawMessage(replaced(string(d.Payload.Accepted), old, other))
}

// echoed replaces the echo of the bazaar extension.
func echoed(raw string) func(*x402test.Draft) {
	return func(d *x402test.Draft) {
		if _, offered := d.Payload.Extensions["bazaar"]; !offered {
			panic("bazaar is not offered")
		}
		d.Payload.Extensions["bazaar"] = json.RawMessage(raw)
	}
}

// identified gives the payment a name of the payer's own, in JSON. The echo repeats
// the schema that was offered.
func identified(id string) func(*x402test.Draft) {
	return func(d *x402test.Draft) {
		const extension = "payment-identifier"
		info := `{"required":false,"id":` + id + `}`
		d.Payload.Extensions[extension] = edited(d.Payload.Extensions[extension], nil, "info", info)
	}
}

// named is identified by a name that is in order.
func named(d *x402test.Draft) { identified(`"e2e_identifier-1"`)(d) }

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
