package x402

import (
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Charge lists the values that the member "charged" can have in answers with one error code.
// The member says whether money has moved for the authorization that came with the request.
type Charge struct {
	No      bool
	Unknown bool
	Yes     bool
}

// String returns the charge as the documentation prints it.
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

// ChargeOf returns the values that "charged" can have in answers with a code. It derives these
// values from the ledger's table, which says for each standing of a payment whether money has
// moved. The tests check every answer against these values.
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

// canBeAbout reports whether an answer with the code of info can be about a payment with the
// standing s.
func canBeAbout(info fault.Info, s ledger.Standing) bool {
	switch info.Code { //nolint:exhaustive // all other codes are decided by their class, below
	case fault.PaymentInProgress: // an attempt is under way, for this payment or for the owner of its purchase
		return s == ledger.StandingInFlight || s == ledger.StandingRunning
	case fault.SettlementUncertain: // this code is also sent if money has moved but the settlement could not be recorded
		return s == ledger.StandingInDoubt || s == ledger.StandingOwed
	case fault.FacilitatorUnavailable, fault.FacilitatorMisconfigured, fault.FacilitatorUnauthorized:
		return s == ledger.StandingMissing || s == ledger.StandingUnsent || s == ledger.StandingInDoubt
	case fault.InternalError: // an internal error can happen before or after the settlement
		return true
	}
	if info.Class == fault.NoCharge { // the payment may have any standing, because an earlier request may have used it
		return true
	}
	return s.Meaning().Moved == ledger.MovedYes
}
