package x402

import (
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Charge is the set of values that "charged" can have in an answer with some code. It
// says whether money has moved for the authorization that came with the request.
type Charge struct {
	No      bool
	Unknown bool
	Yes     bool
}

// String is the charge as documents print it.
func (c Charge) String() string {
	if c.No && c.Unknown && c.Yes {
		return "see body"
	}
	var words []string
	if c.No {
		words = append(words, "no")
	}
	if c.Unknown {
		words = append(words, "not known yet")
	}
	if c.Yes {
		words = append(words, "yes")
	}
	return strings.Join(words, " or ")
}

// ChargeOf returns the values that "charged" can have in answers with a code: what the
// ledger's table says of the payments that such an answer can be about. The tests check every
// answer against it.
func ChargeOf(info fault.Info) Charge {
	var c Charge
	for s := range ledger.Standings {
		if !canBeAbout(info, s) {
			continue
		}
		switch s.Meaning().Moved {
		case ledger.MovedNo:
			c.No = true
		case ledger.MovedYes:
			c.Yes = true
		case ledger.MovedUnknown:
			c.Unknown = true
		}
	}
	return c
}

// canBeAbout says whether an answer with a code can be about a payment that stands there.
func canBeAbout(info fault.Info, s ledger.Standing) bool {
	switch info.Code { //nolint:exhaustive // all others are decided by their class
	case fault.PaymentInProgress: // an attempt holds the payment, or holds the one that owns its purchase
		return s == ledger.StandingInFlight || s == ledger.StandingRunning
	case fault.SettlementUncertain: // also a transfer that could not be recorded
		return s == ledger.StandingInDoubt || s == ledger.StandingOwed
	case fault.FacilitatorUnavailable, fault.FacilitatorMisconfigured, fault.FacilitatorUnauthorized:
		return s == ledger.StandingMissing || s == ledger.StandingUnsent || s == ledger.StandingInDoubt
	case fault.InternalError: // it can come before the settlement, and after it
		return true
	}
	if info.Class == fault.NoCharge { // the same payment may have been used before
		return true
	}
	return s.Meaning().Moved == ledger.MovedYes
}
