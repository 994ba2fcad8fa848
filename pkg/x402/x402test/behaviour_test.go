package x402test_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// newFacilitator returns a facilitator that behaves the same way in every call of /settle.
func newFacilitator(t *testing.T, how x402test.Behaviour) *x402test.Facilitator {
	t.Helper()
	terms := x402.USDC()
	terms.PayTo = payee
	f, err := x402test.NewFacilitator(x402test.FacilitatorConfig{
		Terms:  terms,
		Now:    time.Now,
		Behave: func(int, string) x402test.Behaviour { return how },
		Slow:   func(x402test.Behaviour) time.Duration { return 10 * time.Millisecond },
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// payment signs a payment of 5,000 atomic units to the account that a facilitator of
// newFacilitator expects. If change is not nil, it alters the payment before it is signed.
func payment(t *testing.T, change func(*x402test.Draft)) (x402.Payload, x402.Requirements) {
	t.Helper()
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	terms := x402.USDC()
	terms.PayTo = payee
	offer := x402.PaymentRequired{X402Version: x402.Version, Accepts: []x402.Requirements{terms.Requirements("5000")}}
	draft, err := wallet.Draft(offer, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&draft)
	}
	header, err := wallet.Seal(draft)
	if err != nil {
		t.Fatal(err)
	}
	text, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		t.Fatal(err)
	}
	var payload x402.Payload
	if err := json.Unmarshal(text, &payload); err != nil {
		t.Fatal(err)
	}
	return payload, offer.Accepts[0]
}

// TestBehaviours sends a payment twice to a facilitator in the seller's process, and twice to
// a facilitator over HTTP. Both facilitators must give the same results, for the first call
// and for the repeated one. Both must move the money equally often.
func TestBehaviours(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		how                  x402test.Behaviour
		wantFirst, wantAgain x402.Class
		moved                int
	}{
		{how: x402test.Honest, wantFirst: x402.Moved, wantAgain: x402.Refused, moved: 1},
		{how: x402test.Refuse, wantFirst: x402.Refused, wantAgain: x402.Refused},
		{how: x402test.RefuseAfter, wantFirst: x402.Refused, wantAgain: x402.Refused, moved: 1},
		{how: x402test.FailBefore, wantFirst: x402.Unknown, wantAgain: x402.Unknown},
		{how: x402test.FailAfter, wantFirst: x402.Unknown, wantAgain: x402.Unknown, moved: 1},
		{how: x402test.DropAfter, wantFirst: x402.Unknown, wantAgain: x402.Unknown, moved: 1},
		{how: x402test.Unconfirmed, wantFirst: x402.Unknown, wantAgain: x402.Unknown, moved: 1},
		{how: x402test.Unauthorized, wantFirst: x402.TurnedAway, wantAgain: x402.TurnedAway},
		{how: x402test.TooMany, wantFirst: x402.TurnedAway, wantAgain: x402.TurnedAway},
		{how: x402test.Revert, wantFirst: x402.Unknown, wantAgain: x402.Unknown},
		{how: x402test.HoldAfter, wantFirst: x402.Unknown, wantAgain: x402.Unknown, moved: 1},
		{how: x402test.SlowAfter, wantFirst: x402.Moved, wantAgain: x402.Refused, moved: 1},
		{how: x402test.SlowBefore, wantFirst: x402.Moved, wantAgain: x402.Refused, moved: 1},
		{how: x402test.MoveLater, wantFirst: x402.Unknown, wantAgain: x402.Unknown, moved: 1},
	} {
		t.Run(c.how.String(), func(t *testing.T) {
			t.Parallel()
			near, far := newFacilitator(t, c.how), newFacilitator(t, c.how)
			server := httptest.NewServer(far)
			defer server.Close()
			client := clientOf(t, server.URL)
			payload, requirements := payment(t, nil)
			for _, want := range []x402.Class{c.wantFirst, c.wantAgain} {
				here := settle(t, near.InProcess(), payload, requirements)
				there := settle(t, client, payload, requirements)
				compare(t, here, there)
				if here.Class != want {
					t.Errorf("%+v, want %v", here, want)
				}
				for near.Pending()+far.Pending() > 0 {
					time.Sleep(time.Millisecond)
				}
			}
			if len(near.Transfers()) != c.moved || len(far.Transfers()) != c.moved {
				t.Errorf("transfers %+v in this process, %+v over HTTP; want %d", near.Transfers(), far.Transfers(), c.moved)
			}
		})
	}
}

// TestInvalidPayments sends invalid payments to facilitators that would move the money of a
// valid payment. Each payment must be refused without moving money, and for the same reason
// over HTTP and in the process.
func TestInvalidPayments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*x402test.Draft)
		want   x402.Settlement
	}{
		"expired": {
			change: func(d *x402test.Draft) { d.Payload.Payload.Authorization.ValidBefore = "1700000000" },
			want:   x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_payload_authorization_valid_before", Expired: true},
		},
		"signed for another token": {
			change: func(d *x402test.Draft) { d.Terms.Name = "Euro Coin" },
			want:   x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_signature", BadSignature: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, far := newFacilitator(t, x402test.FailAfter), newFacilitator(t, x402test.FailAfter)
			server := httptest.NewServer(far)
			defer server.Close()
			client := clientOf(t, server.URL)
			payload, requirements := payment(t, c.change)
			here := settle(t, near.InProcess(), payload, requirements)
			compare(t, here, settle(t, client, payload, requirements))
			c.want.Payer, c.want.Network = here.Payer, x402.Base
			compare(t, here, c.want)
			if len(near.Transfers())+len(far.Transfers()) > 0 {
				t.Error("money moved")
			}
		})
	}
}

// clientOf returns a client of package facilitator for the facilitator at a URL.
func clientOf(t *testing.T, url string) *facilitator.Client {
	t.Helper()
	credentials, err := facilitator.Bearer("token")
	if err != nil {
		t.Fatal(err)
	}
	client, err := facilitator.New(facilitator.Config{URL: url, Credentials: credentials})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// settle calls Settle with a time limit that is too short for the client to send a second
// request.
func settle(t *testing.T, f x402.Facilitator, payload x402.Payload, q x402.Requirements) x402.Settlement {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	return f.Settle(ctx, payload, q)
}

// compare fails the test if two settlements differ, except in Cause, which is only logged.
func compare(t *testing.T, got, want x402.Settlement) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(x402.Settlement{}, "Cause")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
