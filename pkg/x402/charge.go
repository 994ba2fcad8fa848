package x402

import (
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Charge says what charged can be in an answer with a code: whether money has
// moved for the authorization that came with the request.
type Charge struct{ No, Yes, Unknown bool }

// Allows says whether charged may have a value; nil is not known.
func (c Charge) Allows(charged *bool) bool {
	switch {
	case charged == nil:
		return c.Unknown
	case *charged:
		return c.Yes
	}
	return c.No
}

// String is the charge as documents print it.
func (c Charge) String() string {
	var all []string
	for _, v := range []struct {
		can  bool
		what string
	}{{c.No, "no"}, {c.Unknown, "not known yet"}, {c.Yes, "yes"}} {
		if v.can {
			all = append(all, v.what)
		}
	}
	if len(all) == 3 {
		return "see body"
	}
	return strings.Join(all, " or ")
}

func (c *Charge) add(charged *bool) {
	switch {
	case charged == nil:
		c.Unknown = true
	case *charged:
		c.Yes = true
	default:
		c.No = true
	}
}

// ChargeOf says what charged can be with a code. It is computed from the tables
// that decide it.
func ChargeOf(info fault.Info) Charge {
	var c Charge
	switch {
	case info.Code == fault.InternalError:
		return byAnyRecord() // it can come before the settlement, too
	case info.Class == fault.Answer || info.Class == fault.Owed:
		return Charge{Yes: true}
	}
	switch info.Code { //nolint:exhaustive // all others are what any record says
	case fault.PaymentInProgress:
		// Another attempt has it: it may be moving the money, or has moved it.
		return Charge{Unknown: true, Yes: true}
	case fault.SettlementUncertain:
		c.Yes = true // the verdict is on record, the lease is another attempt's
		for _, row := range conclusions() {
			if row.reply == replyUnsure {
				c.add(nil)
			}
		}
		return c
	case fault.FacilitatorUnavailable, fault.FacilitatorMisconfigured, fault.FacilitatorUnauthorized:
		c.No = true // from /verify, before any claim
		for _, row := range conclusions() {
			if row.reply == replyFault && row.doubt.covers(inDoubt) {
				c.add(nil)
			}
		}
		return c
	}
	return byAnyRecord()
}

// byAnyRecord is the charge of a code that can be answered with any record, and
// without one.
func byAnyRecord() Charge {
	c := Charge{No: true}
	for _, s := range ledger.States() {
		c.add(chargedBy(ledger.Record{State: s}))
	}
	return c
}
