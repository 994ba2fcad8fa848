package x402

import "github.com/hostfacts/hostfacts/pkg/x402/fault"

// Charge says what charged can be in an answer with a code: whether money has
// moved for the authorization that came with the request.
type Charge struct{ No, Yes, Unknown bool }

// String is the charge as documents print it.
func (c Charge) String() string {
	return map[Charge]string{
		{No: true}: "no", {Unknown: true}: "not known yet", {Yes: true}: "yes", {No: true, Unknown: true}: "no or not known yet",
		{Unknown: true, Yes: true}: "not known yet or yes", {No: true, Yes: true}: "no or yes", {No: true, Unknown: true, Yes: true}: "see body",
	}[c]
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
