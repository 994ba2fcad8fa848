package x402_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// A payer's identifier is a purchase key: another payment under it is the same
// purchase, another request is a conflict, and it is no key to anybody else's.
func TestPaymentIdentifier(t *testing.T) {
	const id = "pay_7d5d747be160e280504c099d984bcfe0"
	within(t, nil, func(t *testing.T, b *harness) {
		required := b.offer.Required("")
		required.Extensions = map[string]json.RawMessage{x402.ExtensionIdentifier: json.RawMessage(`{"info":{"required":false},"schema":{}}`)}
		b.offer = must(x402.NewOffer(required))
		named := func(id string) string {
			return b.sign(func(d *x402test.Draft) {
				d.Payload.Extensions[x402.ExtensionIdentifier] = json.RawMessage(`{"info":{"required":false,"id":` + id + `}}`)
			})
		}
		first := b.ask(named(`"`+id+`"`), "GET /a")
		b.expect("first", first, 200, "", "true", false, true)
		if n := b.writes(); n != 4 {
			t.Errorf("%d writes, want as many as without an identifier", n)
		}
		b.expectReplay("same id, other payment", first, b.ask(named(`"`+id+`"`), "GET /a"))
		b.expect("same id, other request", b.ask(named(`"`+id+`"`), "GET /b"), 409, fault.IdempotencyConflict, "false", false, false)
		b.expectCalls("conflict", 1, 1)
		b.wallet = must(x402test.NewWallet(rand.Reader))
		other := b.ask(named(`"`+id+`"`), "GET /a")
		b.expect("same id, other payer", other, 200, "", "true", false, true)
		if other.Replayed {
			t.Error("an identifier opened another payer's answer")
		}
		for _, bad := range []string{`"short"`, `5`, `"pay_7d5d747be160e280504c099d984bcfe|"`, `"` + strings.Repeat("a", 129) + `"`} {
			b.expect("id "+bad, b.ask(named(bad), "GET /a"), 400, fault.InvalidIdempotencyKey, "false", false, false)
		}
		b.expect("no id", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
	})
}

// Every smoke test settles, because two of them share no answer; with a key they
// are one purchase.
func TestPingIsBoughtAnew(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.withWindow(nil)
		b.anew = true
		h := b.sign(nil)
		b.expect("ping", b.ask(h, "GET /ping"), 200, "", "true", false, true)
		if n := b.writes(); n != 3 {
			t.Errorf("%d writes, want 3", n)
		}
		b.expect("again", b.ask(h, "GET /ping"), 200, "", "true", false, true)
		b.expect("another", b.ask(b.sign(nil), "GET /ping"), 200, "", "true", false, true)
		b.expectCalls("two pings", 2, 2)
		b.keys = []string{"k"}
		b.expect("with a key", b.ask(b.sign(nil), "GET /ping"), 200, "", "true", false, true)
		b.expect("with the same key", b.ask(b.sign(nil), "GET /ping"), 200, "", "true", false, true)
		b.expectCalls("with a key", 3, 3)
	})
}

// Keys that are none are refused before anything is written, and nothing is
// charged.
func TestInvalidKeys(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		for _, keys := range [][]string{{""}, {`""`}, {"a b"}, {"\x7f"}, {"é"}, {strings.Repeat("k", 256)}, {"a", "a"}, {"a\tb"}} {
			b.keys = keys
			b.expect(fmt.Sprintf("%q", keys), b.ask(h, "GET /a"), 400, fault.InvalidIdempotencyKey, "false", false, false)
		}
		if b.writes() != 0 {
			t.Errorf("%d writes", b.writes())
		}
		for _, key := range []string{"k", `"`, `"a`, "a,b", "~!", strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`} {
			b.keys = []string{key}
			b.expect(key, b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
		}
		b.keys = []string{"a b"}
		b.expect("charged before", b.ask(h, "GET /a"), 400, fault.InvalidIdempotencyKey, "false", false, false)
	})
}

// A key proves its sender from sixteen characters on: with one less, an
// authorization that was paid is not answered again.
func TestShortestSecretKey(t *testing.T) {
	for key, secret := range map[string]bool{"0123456789abcdef": true, "0123456789abcde": false} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.keys = []string{key}
			h := b.sign(func(d *x402test.Draft) { delete(d.Payload.Extensions, "retry-token") })
			first := b.ask(h, "GET /a")
			b.expect(key, first, 200, "", "true", false, true)
			if again := b.ask(h, "GET /a"); secret {
				b.expectReplay(key, first, again)
			} else {
				b.expect(key, again, 402, fault.PaymentRequired, "true", false, false)
			}
		})
	}
}
