package x402_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
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
		b.offersNames()
		named := func(id string) string {
			return b.sign(func(d *x402test.Draft) {
				d.Payload.Extensions[x402.ExtensionIdentifier] = json.RawMessage(`{"info":{"required":false,"id":` + id + `}}`)
			})
		}
		h := named(`"` + id + `"`)
		b.expect("first", b.ask(h, "GET /a"), 200, "", "true", false, true)
		if n := b.writes(); n != 4 {
			t.Errorf("%d writes, want as many as without an identifier", n)
		}
		again := b.ask(h, "GET /a")
		b.expect("same id, same payment", again, 200, "", "true", false, true)
		if !again.Replayed {
			t.Error("not replayed")
		}
		second := b.ask(named(`"`+id+`"`), "GET /a")
		b.expect("same id, other payment", second, 200, "", "true", false, true)
		if !second.Replayed || *second.Receipt != *again.Receipt {
			t.Errorf("same id, other payment: %+v", second)
		}
		b.expect("same id, other request", b.ask(named(`"`+id+`"`), "GET /b"), 409, fault.IdempotencyConflict, "false", false, false)
		b.expectCalls("conflict", 1, 1)
		var err error
		if b.wallet, err = x402test.NewWallet(rand.Reader); err != nil {
			t.Fatal(err)
		}
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

// What a payment buys is settled by its first claim: a key that comes with a repeat
// changes nothing, also when it names another purchase by then.
func TestKeyOnARepeat(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		first := b.ask(h, "GET /a")
		b.expect("without a key", first, 200, "", "true", false, true)
		b.keys = []string{"order-7"}
		b.expect("the key's own", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
		b.expectReplay("the first, with that key", first, b.ask(h, "GET /a"))
		b.expectCalls("in all", 2, 2)
	})
}

// What a settlement publishes on the chain gives no access to the answer: a copy of
// authorization and signature gets the same 402 for every request, and causes no
// write, no lookup and no call. The payer, who has the token or the key, gets the
// answer.
func TestCopiedFromTheChain(t *testing.T) {
	for name, bring := range standings() {
		for _, keyed := range []bool{false, true} {
			within(t, nil, func(t *testing.T, b *harness) {
				if keyed {
					b.keys = []string{"a-key-that-nobody-can-guess"}
				}
				var draft x402test.Draft
				h := b.sign(func(d *x402test.Draft) {
					if keyed {
						delete(d.Payload.Extensions, "retry-token")
					}
					draft = *d
				})
				bring.bring(b, h)
				b.keys = nil
				draft.Payload.Extensions = maps.Clone(draft.Payload.Extensions)
				delete(draft.Payload.Extensions, "retry-token")
				bare := must(b.wallet.Seal(draft))
				draft.Payload.Extensions["retry-token"] = json.RawMessage(`{"info":{"token":"guess"}}`)
				guess := must(b.wallet.Seal(draft))
				writes, settles, runs := b.writes(), len(b.settles), b.runs.Load()
				said := map[string]bool{}
				for _, copied := range []string{bare, guess} {
					for _, path := range []string{"GET /a", "GET /b"} {
						for _, key := range [][]string{nil, {"a-key-that-was-guessed"}} {
							b.keys = key
							out := b.ask(copied, path)
							if out.Status != 402 || out.Receipt != nil || out.Replayed || out.Trace.Unrecorded {
								t.Errorf("%s, %s: %+v", name, path, out)
							}
							said[out.Fault.Public()] = true
						}
					}
				}
				if len(said) != 1 {
					t.Errorf("%s: a stranger can tell requests apart: %v", name, said)
				}
				// A repeat that is judged at its claim tries to create the record.
				if w := b.writes(); w > writes+8 || len(b.settles) != settles || b.runs.Load() != runs {
					t.Errorf("%s: %d writes, %d settles, %d lookups", name, w-writes, len(b.settles)-settles, b.runs.Load()-runs)
				}
				if r := b.stored(h); r.Attempt > 1 && name != "spent" && name != "owed" {
					t.Errorf("%s: %+v", name, r)
				}
			})
		}
	}
}

// A client that echoes no token and sends no key may repeat its payment until it
// is known that its money moved. From then on it signs anew, and the purchase
// answers.
func TestWithoutToken(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.withWindow(nil)
		b.settle = settles(x402.Settlement{Class: x402.Unknown})
		plain := func(d *x402test.Draft) { delete(d.Payload.Extensions, "retry-token") }
		h := b.sign(plain)
		b.expect("in doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.settle = settles(moved())
		first := b.ask(h, "GET /a")
		b.expect("again", first, 200, "", "true", false, true)
		b.expect("once it has moved", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "true", false, false)
		b.expectReplay("signed anew", first, b.ask(b.sign(plain), "GET /a"))
		b.expectCalls("in all", 2, 1)
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
