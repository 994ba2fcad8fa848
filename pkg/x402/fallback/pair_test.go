package fallback

import (
	"context"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// How a Pair settles a payment is tested in package x402, which has the test harness of the
// Gate.

// verifier is a facilitator that adds its name to *asked at each call of Verify. A verifier that
// is down decides nothing. Any other verifier calls every payment valid.
type verifier struct {
	x402.Facilitator
	name  string
	down  bool
	asked *string
}

func (v verifier) Verify(context.Context, x402.Payload, x402.Requirements) x402.Verification {
	*v.asked += v.name
	if v.down {
		return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
	}
	return x402.Verification{Valid: true}
}

// TestVerifyBesideAnOpenBreaker checks which facilitators are asked to verify. If one breaker is
// open, only the facilitator with the closed breaker must be asked. If both breakers are open,
// only the primary must be asked. If both are closed, the second must be asked only if the
// primary is down. Verifications must neither open nor close a breaker, because a payer can
// cause any number of them. Therefore each case calls Verify more than breakerFailures times.
func TestVerifyBesideAnOpenBreaker(t *testing.T) {
	lost := x402.Settlement{Class: x402.Unknown, NoDecision: true}
	for _, c := range []struct {
		name                    string
		primaryOpen, secondOpen bool // whether the breaker of the primary, and that of the second, is open
		primaryDown             bool // whether the primary is down
		wantAsked               string
		valid                   bool
	}{
		{name: "both in order", wantAsked: "p", valid: true},
		{name: "the primary is down", primaryDown: true, wantAsked: "ps", valid: true},
		{name: "the primary's is open", primaryOpen: true, wantAsked: "s", valid: true},
		{name: "the second's is open", secondOpen: true, primaryDown: true, wantAsked: "p"},
		{name: "both are open", primaryOpen: true, secondOpen: true, primaryDown: true, wantAsked: "p"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := ""
			now := time.Unix(1_700_000_000, 0)
			p := &Pair{
				Primary: Member{Facilitator: verifier{name: "p", down: c.primaryDown, asked: &asked}, Name: "primary.example"},
				Second:  Member{Facilitator: verifier{name: "s", asked: &asked}, Name: "second.example"},
				Now:     func() time.Time { return now },
			}
			for range breakerFailures {
				if c.primaryOpen {
					p.Primary.breaker.countReply(now, lost, true)
				}
				if c.secondOpen {
					p.Second.breaker.countReply(now, lost, true)
				}
			}
			for range breakerFailures + 1 {
				asked = ""
				if v := p.Verify(t.Context(), x402.Payload{}, x402.Requirements{}); v.Valid != c.valid || asked != c.wantAsked {
					t.Errorf("%+v, asked %q; want %t, %q", v, asked, c.valid, c.wantAsked)
				}
			}
		})
	}
}
