package e2e

import (
	"bytes"
	"encoding/hex"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestHostilePayments sends every payment header that is not in order: each is
// a 402 that names the fault (check holds it to the offer, code
// payment_required and the header PAYMENT-REQUIRED). The facilitator is never
// asked to settle, and nothing is ever written.
func TestHostilePayments(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "signs 200 payments under the race detector")
	l, c := newLab(t), newControls(t)
	d := c.serve(t, l, l.setup(), c.inMemory())
	writes := func() int { return c.store.Calls(ledgertest.Create) + c.store.Calls(ledgertest.Replace) }
	names := map[string]bool{}
	for _, s := range append(refusalCases(), hostileCases()...) {
		if s.needs.has(gateway) {
			continue // answered by the gateway, before our code
		}
		if names[s.name] {
			t.Errorf("two cases are called %q", s.name)
		}
		names[s.name] = true
		t.Run(s.name, func(t *testing.T) {
			fairly(t, func(tb testing.TB, p *pace) { play(tb, p, l, d, s) })
		})
	}
	if all, _ := l.facilitator.Settles(); all != 0 {
		t.Errorf("the facilitator was asked to settle %d times", all)
	}
	if l.facilitator.Verifies() == 0 {
		t.Error("no foreign signature went to the facilitator's judgement")
	}
	if n := writes(); n != 0 {
		t.Errorf("the ledger has %d writes", n)
	}
	// The same books see a payment that is in order.
	play(t, &pace{}, l, d, scenario{name: "in order", steps: []step{pay(refusedPath, result(""))}})
	if all, _ := l.facilitator.Settles(); all != 1 || writes() != 3 {
		t.Errorf("a payment in order: %d settlements, %d writes", all, writes())
	}
	t.Logf("%d headers", len(names))
}

// hostileCases are payments that are not in order, beyond those of
// refusalCases.
func hostileCases() []scenario {
	return slices.Concat(hostileForm(), hostileNumbers(), hostileSignatures(), hostileTerms())
}

// hostileForm: base64, JSON, and the members that must be there.
func hostileForm() []scenario {
	const unacceptable = "not acceptable JSON"
	list := []scenario{
		bad("base64 and more", "not base64", func(s string) string { return s + "\x20x" }),
		bad("padding inside", "not base64", func(s string) string { return s[:8] + "==" + s[8:] }),
		bad("base64 twice", unacceptable, reencode(constant("e30="))),
		bad("a trailing NUL", unacceptable, reencode(func(s string) string { return s + "\x00" })),
		bad("a comment", unacceptable, reencode(func(s string) string { return "/**/" + s })),
		bad("not UTF-8 in a value", unacceptable, replacing(`"scheme":"exact"`, "\"scheme\":\"exact\xc3\"")),
		bad("33 deep", "nested deeper than 32", replacing(`"accepted":`, `"x":`+strings.Repeat(`[`, 33)+strings.Repeat(`]`, 33)+`,"accepted":`)),
		bad("version missing", "x402Version must be a number", dropping("x402Version")),
		bad("version -2", `x402Version is "-2"`, replacing(`"x402Version":2`, `"x402Version":-2`)),
		bad("version 2e0", `x402Version is "2e0"`, replacing(`"x402Version":2`, `"x402Version":2e0`)),
		bad("version null", "x402Version must be a number", replacing(`"x402Version":2`, `"x402Version":null`)),
		bad("accepted is an array", "accepted must be an object", replacing(`"accepted":{`, `"accepted":[],"was":{`)),
		bad("accepted is null", "accepted must be an object", replacing(`"accepted":{`, `"accepted":null,"was":{`)),
		bad("payload is text", "payload must be an object", replacing(`"payload":{`, `"payload":"0x","was":{`)),
		bad("authorization is null", "payload.authorization must be an object", replacing(`"authorization":{`, `"authorization":null,"was":{`)),
	}
	// JSON members in another letter case are other members.
	for _, c := range []struct{ key, reason string }{
		{"accepted", "accepted must be an object"},
		{"payload", "payload must be an object"},
		{"signature", "payload.signature must be a string"},
		{"authorization", "payload.authorization must be an object"},
		{"from", "from must be a string"}, {"to", "to must be a string"}, {"value", "value must be a string"},
		{"validAfter", "validAfter must be a string"}, {"validBefore", "validBefore must be a string"},
		{"nonce", "nonce must be a string"},
	} {
		other := strings.ToUpper(c.key[:1]) + c.key[1:]
		list = append(list, bad("key "+other, c.reason, replacing(`"`+c.key+`":`, `"`+other+`":`)))
	}
	return list
}

// hostileNumbers: every number of the authorization, in every spelling but its
// own.
func hostileNumbers() []scenario {
	most := new(big.Int).Lsh(big.NewInt(1), 256)
	var list []scenario
	for _, member := range []string{"value", "validAfter", "validBefore"} {
		for name, c := range map[string]struct{ raw, reason string }{
			"a number":      {`1000`, member + " must be a string"},
			"null":          {`null`, member + " must be a string"},
			"a boolean":     {`true`, member + " must be a string"},
			"empty":         {`""`, member + ": must be a decimal uint256"},
			"negative":      {`"-1"`, member + ": must be a decimal uint256"},
			"negative zero": {`"-0"`, member + ": must be a decimal uint256"},
			"signed":        {`"+1000"`, member + ": must be a decimal uint256"},
			"leading zero":  {`"00"`, member + ": must not have leading zeros"},
			"hexadecimal":   {`"0x3e8"`, member + ": must be a decimal uint256"},
			"exponent":      {`"1e3"`, member + ": must be a decimal uint256"},
			"fraction":      {`"1000.0"`, member + ": must be a decimal uint256"},
			"blank":         {`" 1000"`, member + ": must be a decimal uint256"},
			"grouped":       {`"1,000"`, member + ": must be a decimal uint256"},
			"other digits":  {`"１０００"`, member + ": must be a decimal uint256"},
			"2^256":         {`"` + most.String() + `"`, member + ": is larger than a uint256"},
			"80 digits":     {`"` + strings.Repeat("9", 80) + `"`, member + ": must be a decimal uint256"},
		} {
			list = append(list, bad(member+" is "+name, c.reason, authorization(member, c.raw)))
		}
	}
	return list
}

// hostileSignatures: lengths, v, r and s, and who signed.
func hostileSignatures() []scenario {
	const length, form, foreign = "payload.signature: must be 65 to 4096 bytes of hex", "payload.signature", "invalid_exact_evm_signature"
	zero := make([]byte, 32)
	order, _ := hex.DecodeString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141")
	part := func(at int, b []byte) func(string) string {
		return resign(func(s []byte) []byte { copy(s[at:], b); return s })
	}
	return []scenario{
		bad("no signature", "payload.signature: must start with 0x", inside([]string{"payload"}, "signature", `""`)),
		bad("an empty signature", length, inside([]string{"payload"}, "signature", `"0x"`)),
		bad("66 bytes", foreign, resign(func(b []byte) []byte { return append(b, 0) })),
		bad("4,096 bytes", foreign, resign(func([]byte) []byte { return bytes.Repeat([]byte{7}, 4096) })),
		bad("4,097 bytes", length, resign(func([]byte) []byte { return bytes.Repeat([]byte{7}, 4097) })),
		bad("0X", "payload.signature: must start with 0x", replacing(`"signature":"0x`, `"signature":"0X`)),
		bad("v of 0", "v is 0", withV(0)),
		bad("v of 1", "v is 1", withV(1)),
		bad("v of 26", "v is 26", withV(26)),
		bad("v of 31", "v is 31", withV(31)),
		bad("v of 255", "v is 255", withV(255)),
		bad("r of 0", foreign, part(0, zero)),
		bad("r of the order", foreign, part(0, order)),
		bad("s of 0", foreign, part(32, zero)),
		bad("s of the order", foreign, part(32, order)),
		bad("s of 2^256-1", foreign, part(32, bytes.Repeat([]byte{255}, 32))),
		bad("all zero", foreign, resign(func([]byte) []byte { return make([]byte, 65) })),
		bad("another payer's name", foreign, authorization("from", `"0x70997970C51812dc3A010C7d01b50e0d17dc79C8"`)),
		bad("nobody's name", foreign, authorization("from", `"0x0000000000000000000000000000000000000000"`)),
		bad("an address without 0x", "from:", authorization("from", `"70997970C51812dc3A010C7d01b50e0d17dc79C8"`)),
		bad("an address in 0X", "from:", authorization("from", `"0X70997970C51812dc3A010C7d01b50e0d17dc79C8"`)),
		bad("an ENS name", "to:", authorization("to", `"payee.eth"`)),
		bad("a nonce of 33 bytes", "nonce: must be 32 bytes of hex", authorization("nonce", `"0x`+strings.Repeat("0", 66)+`"`)),
		bad("a nonce of no hex", "nonce: is not hex", authorization("nonce", `"0x`+strings.Repeat("g", 64)+`"`)),
		bad("a nonce that is a number", "nonce must be a string", authorization("nonce", `1`)),
		bad("another nonce", foreign, authorization("nonce", `"0x`+strings.Repeat("0", 64)+`"`)),
	}
}

// hostileTerms: properly signed, and not what was offered.
func hostileTerms() []scenario {
	// later is a time after the signing, which may come long after this table
	// was made.
	later := func(d time.Duration, set func(string) func(*x402test.Draft)) func(*x402test.Draft) {
		return func(draft *x402test.Draft) { set(strconv.FormatInt(time.Now().Add(d).Unix(), 10))(draft) }
	}
	until := func(at string) func(*x402test.Draft) {
		return func(d *x402test.Draft) { d.Payload.Payload.Authorization.ValidBefore = at }
	}
	after := func(at string) func(*x402test.Draft) {
		return func(d *x402test.Draft) { d.Payload.Payload.Authorization.ValidAfter = at }
	}
	value := func(v string) func(*x402test.Draft) {
		return func(d *x402test.Draft) { d.Payload.Payload.Authorization.Value = v }
	}
	text := func(old, other string) func(*x402test.Draft) {
		return func(d *x402test.Draft) { acceptedText(d, other, old) }
	}
	most := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)).String()
	list := []scenario{
		odd("scheme in capitals", `accepted.scheme is "EXACT"`, accepted("scheme", "EXACT")),
		odd("network in capitals", `accepted.network is "EIP155:8453"`, accepted("network", "EIP155:8453")),
		odd("network by name", `accepted.network is "base"`, accepted("network", "base")),
		odd("asset in capitals", "accepted.asset is", func(d *x402test.Draft) { acceptedText(d, "0x"+strings.ToUpper(d.Terms.Asset[2:]), d.Terms.Asset) }),
		odd("token name in lower case", "accepted.extra", text("USD Coin", "usd coin")),
		odd("flow in capitals", "accepted.extra", text(`"upfront"`, `"Upfront"`)),
		odd("token version as a number", "accepted.extra", text(`"version":"2"`, `"version":2`)),
		odd("no extra", "accepted.extra", text(`"extra":`, `"was":`)),
		odd("amount with a zero", `accepted.amount is "01000"`, accepted("amount", "01000")),
		odd("time-out as text", "accepted.maxTimeoutSeconds", text(`"maxTimeoutSeconds":300`, `"maxTimeoutSeconds":"300"`)),
		odd("time-out as a fraction", "accepted.maxTimeoutSeconds", text(`"maxTimeoutSeconds":300`, `"maxTimeoutSeconds":300.0`)),
		odd("nothing to pay", "authorization.value is 0", value("0")),
		odd("2^256-1 to pay", "authorization.value is 1157920892", value(most)),
		odd("the value modulo 2^64", "authorization.value is 18446744073709552616", value("18446744073709552616")),
		odd("ended at the beginning of time", "validBefore is past", until("0")),
		odd("ended in 2^64 seconds, modulo", "more than 24 hours away", until("18446744073709551616")),
		odd("valid for a day and a minute", "more than 24 hours away", later(24*time.Hour+time.Minute, until)),
		odd("valid from the end of time", "validAfter is in the future", after(most)),
		odd("valid in a minute", "validAfter is in the future", later(time.Minute, after)),
		odd("under another version of the token", "invalid_exact_evm_signature", func(d *x402test.Draft) { d.Terms.Version = "1" }),
		odd("an echo of a list", "extension_echo_mismatch", echoed(`{"info":[]}`)),
		noKey("a short identifier", `"short"`),
		noKey("an identifier with a bar", `"e2e|identifier|1"`),
		noKey("an identifier that is a number", `1234567890123456`),
	}
	for _, key := range []string{"scheme", "network", "asset", "amount", "payTo", "maxTimeoutSeconds"} {
		other := strings.ToUpper(key[:1]) + key[1:]
		list = append(list, odd("key "+other, "accepted."+key+" does not match", text(`"`+key+`":`, `"`+other+`":`)))
	}
	return list
}

// noKey is a payment whose payment-identifier is no purchase key.
func noKey(name, id string) scenario {
	return scenario{name: "payment: " + name, steps: []step{payWith(refusedPath, identified(id), nil, fails(fault.InvalidIdempotencyKey))}}
}
