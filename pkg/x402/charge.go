package x402

import (
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Charge says what charged can be in an answer with a code: whether money has
// moved for the authorization that came with the request.
type Charge struct{ No, Yes, Unknown bool }

// String is the charge as documents print it.
func (c Charge) String() string {
	if c.No && c.Unknown && c.Yes {
		return "see body"
	}
	var all []string
	for _, v := range []struct {
		can  bool
		what string
	}{{c.No, "no"}, {c.Unknown, "not known yet"}, {c.Yes, "yes"}} {
		if v.can {
			all = append(all, v.what)
		}
	}
	return strings.Join(all, " or ")
}

// ChargeOf says what charged can be with a code. Every answer of the campaign is held
// to it.
func ChargeOf(info fault.Info) Charge {
	switch info.Code { //nolint:exhaustive // all others are decided by their class
	case fault.PaymentInProgress, fault.SettlementUncertain:
		// Another attempt may be moving the money, or has moved it.
		return Charge{Yes: true, Unknown: true}
	case fault.FacilitatorUnavailable, fault.FacilitatorMisconfigured, fault.FacilitatorUnauthorized:
		// What was charged is answered as such.
		return Charge{No: true, Unknown: true}
	case fault.InternalError: // it can come before the settlement, too
	default:
		if info.Class != fault.NoCharge {
			return Charge{Yes: true}
		}
	}
	return Charge{No: true, Yes: true, Unknown: true}
}
