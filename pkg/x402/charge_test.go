package x402

import (
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// What charged can be with each code, written down independently of the tables
// that it is derived from.
func TestChargeOf(t *testing.T) {
	yes, no := charged(true), charged(false)
	any3 := Charge{No: true, Yes: true, Unknown: true}
	special := map[fault.Code]Charge{
		fault.PaymentInProgress:        {Yes: true, Unknown: true},
		fault.SettlementUncertain:      {Yes: true, Unknown: true},
		fault.FacilitatorUnavailable:   {No: true, Unknown: true},
		fault.FacilitatorMisconfigured: {No: true, Unknown: true},
		fault.FacilitatorUnauthorized:  {No: true, Unknown: true},
		fault.IdempotencyConflict:      {No: true, Unknown: true},
		fault.InternalError:            any3,
	}
	for _, info := range fault.All() {
		want, ok := special[info.Code]
		switch {
		case ok:
		case info.Class == fault.Answer || info.Class == fault.Owed:
			want = Charge{Yes: true}
		default:
			want = any3
		}
		got := ChargeOf(info.Code)
		if got != want {
			t.Errorf("%s: %+v, want %+v", info.Code, got, want)
		}
		if got.Allows(yes) != want.Yes || got.Allows(no) != want.No || got.Allows(nil) != want.Unknown {
			t.Errorf("%s: Allows does not follow %+v", info.Code, got)
		}
	}
	for c, want := range map[Charge]string{
		any3: "see body", {Yes: true}: "yes", {No: true}: "no", {Unknown: true, Yes: true}: "not known yet or yes", {No: true, Unknown: true}: "no or not known yet",
	} {
		if c.String() != want {
			t.Errorf("%+v is %q, want %q", c, c, want)
		}
	}
}
