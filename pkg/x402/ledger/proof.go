package ledger

// Proof is what shows that a repeated authorization comes from its payer: the
// digests of secrets that went with the first claim. An authorization and its
// signature prove nothing once they are settled, because a settlement publishes
// both.
type Proof struct {
	// Token is the hex SHA-256 of the retry token, and Key that of a purchase
	// key that is long enough not to be guessed. Empty without one.
	Token string `json:"token,omitempty"`
	Key   string `json:"key,omitempty"`
}

func (p Proof) kept() *Proof { return &p }

// shares says that both have the same secret.
func (p Proof) shares(q Proof) bool {
	return p.Token != "" && p.Token == q.Token || p.Key != "" && p.Key == q.Key
}

// Vouches says whether a payment that names a record's authorization comes from
// its payer: it brings a secret of the first claim. A first claim that came with
// none may be repeated until it is known that its money moved, and so may any of
// the first version, by whoever has the key or the very signature.
func (r Record) Vouches(p Payment) bool {
	same := p.Recovered || r.SigDigest == p.SigDigest
	switch {
	case r.Proof == nil:
		return same
	case r.Proof.shares(p.Proof):
		return true
	case *r.Proof != Proof{}:
		return false
	}
	return same && !r.Paid()
}

// Paid says that money is known to have moved for a record.
func (r Record) Paid() bool {
	return r.State == Settled || r.State == Redeemed || r.State == Refunded
}
