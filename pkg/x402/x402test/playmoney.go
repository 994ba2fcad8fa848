package x402test

import "github.com/hostfacts/hostfacts/pkg/x402/playmoney"

// These types are those of package playmoney, for tests that have both sides of a payment.
type (
	// Facilitator settles play money.
	Facilitator = playmoney.Facilitator
	// FacilitatorConfig configures a Facilitator.
	FacilitatorConfig = playmoney.FacilitatorConfig
	// Behaviour is how a Facilitator treats one settlement.
	Behaviour = playmoney.Behaviour
	// Transfer is play money that has moved.
	Transfer = playmoney.Transfer
)

// The ways a settlement can go; see playmoney.Behaviour.
const (
	Honest       = playmoney.Honest
	Refuse       = playmoney.Refuse
	RefuseAfter  = playmoney.RefuseAfter
	FailBefore   = playmoney.FailBefore
	FailAfter    = playmoney.FailAfter
	DropAfter    = playmoney.DropAfter
	Unconfirmed  = playmoney.Unconfirmed
	Unauthorized = playmoney.Unauthorized
	TooMany      = playmoney.TooMany
)

// NewFacilitator opens the books of a play-money facilitator.
func NewFacilitator(c FacilitatorConfig) (*Facilitator, error) { return playmoney.NewFacilitator(c) }
