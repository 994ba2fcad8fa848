package x402

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestDecodePayment(t *testing.T) {
	with := func(old, replacement string) string {
		if !strings.Contains(vector, old) {
			t.Fatalf("the vector has no %q", old)
		}
		return b64(strings.Replace(vector, old, replacement, 1))
	}
	for _, c := range []struct{ name, header, wantErr string }{
		{"not base64", "not base64!", "not base64"},
		{"base64url", strings.NewReplacer("+", "-", "/", "_").Replace(b64(vector + strings.Repeat("\n?>", 9))), "not base64"},
		{"two headers joined", b64(vector) + ", " + b64(vector), "not base64"},
		{"garbage", b64("hello"), "not valid JSON"},
		{"too long", strings.Repeat("A", 64<<10), "longer than 16384"},
		{"deep", b64(strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)), "nested deeper"},
		{"duplicate key", with(`"value": "10000"`, `"value": "10000", "value": "1"`), `"value" appears twice`},
		{"version 1", with(`"x402Version": 2`, `"x402Version": 1`), "x402Version is"},
		{"no accepted", with(`"accepted": {`, `"acepted": {`), "accepted must be an object"},
		{"extensions array", with(`"extensions": {}`, `"extensions": []`), "extensions must be"},
		{"permit2", with(`"authorization": {`, `"permit2Authorization": {}, "authorization": {`), "Permit2"},
		{"short signature", with(`298ef51b"`, `298ef5"`), "65 to 4096 bytes"},
		{"signature without 0x", with(`"0x5c15`, `"5c15`), "start with 0x"},
		{"signature not hex", with(`"0x5c15`, `"0xzz15`), "is not hex"},
		{"long signature", with(`298ef51b"`, `298ef51b`+strings.Repeat("00", 4100)+`"`), "65 to 4096 bytes"},
		{"from short", with(`"from": "0xf39F`, `"from": "0xf3`), "from: must be 20 bytes"},
		{"to not text", with(`"to": "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"`, `"to": 5`), "to must be a string"},
		{"value a number", with(`"value": "10000"`, `"value": 10000`), "value must be a string"},
		{"value negative", with(`"value": "10000"`, `"value": "-10000"`), "value: must be a decimal"},
		{"value padded", with(`"value": "10000"`, `"value": "010000"`), "value: must be a decimal"},
		{"value 2^256", with(`"value": "10000"`, `"value": "115792089237316195423570985008687907853269984665640564039457584007913129639936"`), "decimal uint256"},
		{"value huge", with(`"value": "10000"`, `"value": "`+strings.Repeat("9", 200)+`"`), "decimal uint256"},
		{"validBefore empty", with(`"validBefore": "1795219500"`, `"validBefore": ""`), "validBefore: must be"},
		{"nonce short", with(`f13480"`, `f134"`), "nonce: must be 32 bytes"},

		{"padded", b64(vector), ""},
		{"without padding", strings.TrimRight(b64(vector), "="), ""},
		{"unknown members", with(`"x402Version": 2`, `"x402Version": 2, "later": {"a": [1, null, true]}`), ""},
		{"null extensions", with(`"extensions": {}`, `"extensions": null`), ""},
		{"no extensions", with(",\n  \"extensions\": {}", ``), ""},
		{"addresses in lower case", with("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266"), ""},
	} {
		_, err := DecodePayment(c.header)
		if (err != nil) != (c.wantErr != "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
			t.Errorf("%s: %v, want it to say %q", c.name, err, c.wantErr)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%s: the reason has %d bytes", c.name, len(err.Error()))
		}
	}
}

func testOffer(t testing.TB) *Offer {
	t.Helper()
	terms := Terms{Network: "eip155:8453", Asset: baseTerms().Asset, PayTo: baseTerms().PayTo, Name: "USD Coin", Version: "2"}
	o, err := NewOffer(PaymentRequired{
		X402Version: 2, Error: "Payment required", Resource: Resource{URL: "https://api.example.com/v1/report"},
		Accepts: []Requirements{terms.Requirements("10000")},
		Extensions: map[string]json.RawMessage{
			"bazaar": json.RawMessage(`{"info":{"input":{"type":"http","queryParams":{"city":"Oslo"}},"list":[1,{"a":2}]},"schema":{}}`),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// offered returns the payment of vector, changed so that it fits the offer that testOffer
// returns.
func offered() string {
	return strings.Replace(strings.Replace(vector, `"version": "2"}`, `"version": "2", "paymentFlow": "upfront"}`, 1),
		`"extensions": {}`, `"extensions": {"bazaar": {"info": {"input": {"type": "http", "queryParams": {"city": "Oslo"}}, "list": [1, {"a": 2}]}, "schema": {}}}`, 1)
}

func TestMatching(t *testing.T) {
	o := testOffer(t)
	now := time.Unix(1795219500-200, 0)
	for _, c := range []struct{ name, old, new, wantErr string }{
		{"as offered", "", "", ""},
		{"extra may grow", `"paymentFlow": "upfront"`, `"paymentFlow": "upfront", "mine": 1`, ""},
		{"unknown member of accepted", `"scheme": "exact"`, `"scheme": "exact", "resource": "x"`, ""},
		{"unknown extension", `"extensions": {`, `"extensions": {"other": 5, `, ""},
		{"extension info may grow", `"list": [1, {"a": 2}]`, `"list": [1, {"a": 2}], "id": "x"`, ""},
		{"extension null", `"extensions": {"bazaar": {"info": {"input": {"type": "http", "queryParams": {"city": "Oslo"}}, "list": [1, {"a": 2}]}, "schema": {}}}`, `"extensions": {"bazaar": null}`, ""},
		{"extension left out", `"extensions": {"bazaar": {"info": {"input": {"type": "http", "queryParams": {"city": "Oslo"}}, "list": [1, {"a": 2}]}, "schema": {}}}`, `"extensions": {}`, ""},
		{"scheme", `"scheme": "exact"`, `"scheme": "upto"`, "accepted.scheme"},
		{"network", `"network": "eip155:8453"`, `"network": "eip155:84532"`, "accepted.network"},
		{"asset", `"asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"`, `"asset": "0x036CbD53842c5426634e7929541eC2318f3dCF7e"`, "accepted.asset"},
		{"asset letter case", `"asset": "0x833589fC`, `"asset": "0x833589fc`, "accepted.asset"},
		{"amount", `"amount": "10000"`, `"amount": "9999"`, "accepted.amount"},
		{"amount a number", `"amount": "10000"`, `"amount": 10000`, "accepted.amount"},
		{"payee", `"payTo": "0x2096`, `"payTo": "0x3096`, "accepted.payTo"},
		{"payee letter case", `"payTo": "0x209693Bc`, `"payTo": "0x209693bc`, "accepted.payTo"},
		{"time-out", `"maxTimeoutSeconds": 300`, `"maxTimeoutSeconds": 3000`, "accepted.maxTimeoutSeconds"},
		{"extra lacks the flow", `, "paymentFlow": "upfront"`, ``, "accepted.extra"},
		{"extra altered", `"version": "2", "paymentFlow"`, `"version": "1", "paymentFlow"`, "accepted.extra"},
		{"authorization payee", `"to": "0x2096`, `"to": "0x3096`, "authorization.to"},
		{"authorization value", `"value": "10000"`, `"value": "10001"`, "authorization.value"},
		{"echo altered", `"city": "Oslo"`, `"city": "Rome"`, "extension_echo_mismatch"},
		{"echo without info", `"extensions": {"bazaar": {"info":`, `"extensions": {"bazaar": {"imfo":`, "extension_echo_mismatch"},
		{"echo not an object", `"extensions": {"bazaar": {"info": {"input": {"type": "http", "queryParams": {"city": "Oslo"}}, "list": [1, {"a": 2}]}, "schema": {}}}`, `"extensions": {"bazaar": 7}`, "extension_echo_mismatch"},
		{"not valid yet", `"validAfter": "0"`, `"validAfter": "1795219400"`, "validAfter is in the future"},
		{"past", `"validBefore": "1795219500"`, `"validBefore": "1795219200"`, "validBefore is past"},
		{"5 s left", `"validBefore": "1795219500"`, `"validBefore": "1795219305"`, "less than 6 seconds"},
		{"6 s left", `"validBefore": "1795219500"`, `"validBefore": "1795219306"`, ""},
		{"a day and a second", `"validBefore": "1795219500"`, `"validBefore": "1795305701"`, "more than 24 hours"},
		{"2^63", `"validBefore": "1795219500"`, `"validBefore": "9223372036854775808"`, "more than 24 hours"},
		{"2^255", `"validBefore": "1795219500"`, `"validBefore": "57896044618658097711785492504343953926634992332820282019728792003956564819968"`, "more than 24 hours"},
	} {
		text := offered()
		if c.old != "" && !strings.Contains(text, c.old) {
			t.Fatalf("%s: nothing to replace", c.name)
		}
		p, err := DecodePayment(b64(strings.Replace(text, c.old, c.new, 1)))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err = o.checkFixed(p); err == nil {
			err = o.checkCurrent(p, now)
		}
		if (c.wantErr == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.wantErr)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.wantErr)
		}
	}
}

// TestEcho plays an offer that advertises one extension on two transports, HTTP and MCP. The
// echo in a payment must contain everything that is advertised on one of the transports, and
// not a mixture of the two. An echoed object may have additional members at any depth, except
// inside a list. Lists and values must be the same. In addition, NewOffer must refuse an
// extension that nobody could echo.
func TestEcho(t *testing.T) {
	const http = `{"type":"http","list":[1,"a",{"k":[true,null]}],"deep":{"a":{"b":"c"}}}`
	const mcp = `{"type":"mcp","tool":"x"}`
	with := func(info string) PaymentRequired {
		p := testOffer(t).Required("")
		p.Extensions = map[string]json.RawMessage{"bazaar": json.RawMessage(`{"info":` + info + `}`)}
		return p
	}
	o, err := NewOffer(with(http), with(mcp))
	if err != nil {
		t.Fatal(err)
	}
	for echoed, fits := range map[string]bool{
		http: true, mcp: true, `{"type":"mcp","tool":"x","more":1}`: true,
		strings.Replace(http, `"b":"c"`, `"more":[],"b":"c"`, 1): true,
		strings.Replace(http, "null", "false", 1):                false,
		strings.Replace(http, ",null", "", 1):                    false,
		strings.Replace(http, `{"k"`, `{"more":1,"k"`, 1):        false,
		strings.Replace(http, `"k"`, `"j"`, 1):                   false,
		strings.Replace(http, `]}]`, `]},3]`, 1):                 false,
		strings.Replace(http, `{"b":"c"}`, `"c"`, 1):             false,
		strings.Replace(http, "http", "mcp", 1):                  false,
		`{"type":"http","tool":"x"}`:                             false,
		`{"type":"http","list":"1"}`:                             false,
		`{}`:                                                     false,
	} {
		tree, err := parseObject([]byte(`{"bazaar":{"info":` + echoed + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := o.checkEcho(&Payment{extensions: tree}); (err == nil) != fits {
			t.Errorf("%s: %v", echoed, err)
		}
	}
	if _, err := NewOffer(with(http), with("7")); err == nil {
		t.Error("a sibling that nobody could echo is taken")
	}
}

func FuzzDecodePayment(f *testing.F) {
	f.Add(b64(vector))
	f.Add(b64(offered()))
	f.Add("")
	f.Add(b64(`{"x402Version":2,"accepted":{},"payload":{"signature":"0x","authorization":{}}}`))
	f.Add(b64(strings.Repeat(`{"a":`, 40)))
	f.Add("\r ")
	for _, doc := range []string{
		"\"\xd3\"", `{"a"b`, "{\"a\":{\"b\":{\x00", `{"x402Version":2,"a":0}`, `{"x402Version":2,"accepted":{}}`,
		strings.Replace(vector, "0xf39F", "0xz39F", 1),
	} {
		f.Add(b64(doc))
	}
	o := testOffer(f)
	f.Fuzz(func(t *testing.T, header string) {
		p, err := DecodePayment(header)
		if err != nil {
			if len(err.Error()) > 400 {
				t.Fatalf("reason of %d bytes", len(err.Error()))
			}
			return
		}
		// The payment that a facilitator gets must decode to the payment that the client sent.
		again, err := EncodeHeader(o.payload(p.exactPayload(), o.terms))
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > maxHeader {
			return // what our offer adds can make the payment too long for a header
		}
		q, err := DecodePayment(again)
		if err != nil {
			t.Fatalf("what is sent does not decode: %v", err)
		}
		if q.Digest(o.domain) != p.Digest(o.domain) || string(q.Signature) != string(p.Signature) || !reflect.DeepEqual(q.accepted, o.accepted) {
			t.Fatal("what is sent is another payment")
		}
		_ = p.Check(p.Digest(o.domain))
		_ = o.checkFixed(p)
		_ = o.checkCurrent(p, time.Unix(1795219300, 0))
	})
}

func TestNewToken(t *testing.T) {
	random := strings.NewReader("0123456789abcdeffedcba9876543210")
	for _, want := range []string{"MDEyMzQ1Njc4OWFiY2RlZg", "ZmVkY2JhOTg3NjU0MzIxMA"} {
		if got, err := NewToken(random); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	broken := errors.New("no entropy")
	for name, random := range map[string]io.Reader{"fails": iotest.ErrReader(broken), "ends": strings.NewReader("fifteen bytes..")} {
		if token, err := NewToken(random); err == nil || token != "" {
			t.Errorf("%s: %q, %v", name, token, err)
		}
	}
}

// TestChallenge plays challenges with several reasons and retry tokens. Each header of a
// challenge must decode to the offer with the token added. The error in the first header must
// be the given reason, and the error in the last must be the offer's default reason. If the
// two reasons are the same, there must be only one header. The offer itself must get no token.
func TestChallenge(t *testing.T) {
	o := testOffer(t)
	for _, reason := range []string{"Payment required", "because", "because of *retry-token* twice *retry-token*"} {
		for _, token := range []string{"AAECAwQFBgcICQoLDA0ODw", "EBESExQVFhcYGRobHB0eHw"} {
			headers, err := o.Challenges(reason, token)
			if err != nil {
				t.Fatal(err)
			}
			checkChallenge(t, o, headers[0], reason, token)
			last := headers[len(headers)-1]
			checkChallenge(t, o, last, "Payment required", token)
			if own := reason == "Payment required"; own != (len(headers) == 1) {
				t.Errorf("%d headers with the reason %q", len(headers), reason)
			}
		}
	}
	if _, carries := o.required.Extensions[ExtensionToken]; carries {
		t.Error("a challenge has changed the offer")
	}
}

func checkChallenge(t *testing.T, o *Offer, header, reason, token string) {
	t.Helper()
	raw, notBase64 := base64.StdEncoding.DecodeString(header)
	var got PaymentRequired
	if err := errors.Join(notBase64, json.Unmarshal(raw, &got)); err != nil {
		t.Fatal(err)
	}
	if got.Error != reason || got.Accepts[0] != o.required.Accepts[0] || got.Resource.URL != o.required.Resource.URL {
		t.Errorf("challenge %+v", got)
	}
	var e struct {
		Info   struct{ Token string }
		Schema struct{ Required []string }
	}
	if err := json.Unmarshal(got.Extensions[ExtensionToken], &e); err != nil || e.Info.Token != token || len(e.Schema.Required) != 1 {
		t.Errorf("%s, %v", got.Extensions[ExtensionToken], err)
	}
	if want := len(o.required.Extensions) + 1; len(got.Extensions) != want {
		t.Errorf("%d extensions, want %d", len(got.Extensions), want)
	}
}

// TestEchoedToken plays payments that echo a retry token. If the token is well formed (1 to
// longestToken visible ASCII characters), it must be read. Otherwise it must count as missing.
func TestEchoedToken(t *testing.T) {
	long := strings.Repeat("x", longestToken)
	for _, c := range []struct{ extensions, want string }{
		{`{"retry-token":{"info":{"token":"AAECAwQFBgcICQoLDA0ODw"},"schema":{}}}`, "AAECAwQFBgcICQoLDA0ODw"},
		{`{"retry-token":{"info":{"token":"~","more":1}}}`, "~"},
		{`{"retry-token":{"info":{"token":"` + long + `"}}}`, long},
		{`{"retry-token":{"info":{"token":"` + long + `x"}}}`, ""},
		{`{"retry-token":{"info":{"token":""}}}`, ""},
		{`{"retry-token":{"info":{"token":"a b"}}}`, ""},
		{`{"retry-token":{"info":{"token":"\u00e9"}}}`, ""},
		{`{"retry-token":{"info":{"token":7}}}`, ""},
		{`{"retry-token":"AAECAwQFBgcICQoLDA0ODw"}`, ""},
		{`{"other":{"info":{"token":"AAECAwQFBgcICQoLDA0ODw"}}}`, ""},
	} {
		tree, err := parseObject([]byte(c.extensions))
		if err != nil {
			t.Fatalf("%s: %v", c.extensions, err)
		}
		if got := (&Payment{extensions: tree}).token(); got != c.want {
			t.Errorf("%s: %q, want %q", c.extensions, got, c.want)
		}
	}
	if got := (&Payment{}).token(); got != "" {
		t.Errorf("no extensions at all: %q", got)
	}
}

func TestForm(t *testing.T) {
	form, err := NewForm(func(token string) any { return map[string]string{"a": token, "b": "<&>"} })
	if err != nil {
		t.Fatal(err)
	}
	first, second := form.JSON("one"), form.JSON("two")
	if string(first) != `{"a":"one","b":"\u003c\u0026\u003e"}` || !strings.HasPrefix(string(second), `{"a":"two"`) {
		t.Errorf("%s, %s", first, second)
	}
	if first[0] = 'x'; form.JSON("one")[0] != '{' {
		t.Error("a change of the caller's copy changes another")
	}
	// In the header, the token may begin and end at any place in a base64 group.
	for before := range 7 {
		for after := range 7 {
			form, err := NewForm(func(token string) any {
				return []string{strings.Repeat("a", before), token, strings.Repeat("b", after)}
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, token := range []string{"AAECAwQFBgcICQoLDA0ODw", strings.Repeat("x", tokenLength)} {
				if got, want := form.Header(token), base64.StdEncoding.EncodeToString(form.JSON(token)); got != want {
					t.Errorf("%d, %d, %q: %s, want %s", before, after, token, got, want)
				}
			}
		}
	}
	for name, build := range map[string]func(string) any{
		"no token":  func(string) any { return "x" },
		"two":       func(token string) any { return []string{token, token} },
		"no JSON":   func(string) any { return func() {} },
		"in pieces": func(token string) any { return []string{token[:11], token[11:]} },
	} {
		if _, err := NewForm(build); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
