package x402

// admission is what becomes of a signed payment before it is claimed.
type admission int

const (
	// admitToday claims it under today's terms.
	admitToday admission = iota + 1
	// admitRecord claims it under the terms in its record.
	admitRecord
	// admitFetch reads its record first: the header alone does not decide.
	admitFetch
	// admitVerify asks the facilitator about its signature first.
	admitVerify
	// admitChain asks the chain first: it was refused before, and today's terms
	// refuse it too, but somebody can have submitted it since.
	admitChain
	// turnTerms answers 402 with what today's terms have against it.
	turnTerms
	// turnUsed answers 402: the authorization was used before, and nothing
	// shows that whoever sends it now is its payer.
	turnUsed
	// turnNonce answers 402: the nonce was used for something else.
	turnNonce
)

// termsFit says whether today's terms allow a payment.
type termsFit int

const (
	anyTerms termsFit = iota
	termsOK
	termsBad
)

// signer says what is known about who signed.
type signer int

const (
	anySigner signer = iota
	// signerRecovered: the payer's own key, recovered from the signature.
	signerRecovered
	// signerStrange: it cannot be recovered from the signature.
	signerStrange
	// signerVouched: the record vouches for whoever sends this (ledger.Vouches).
	signerVouched
	// signerUnvouched: it does not. What is on the chain can be copied from there.
	signerUnvouched
)

// row says what the ledger has under a payment's key.
type row int

const (
	anyRow row = iota
	// rowUnread: nobody has looked yet.
	rowUnread
	rowAbsent
	// rowForeign: it is of another authorization with the same nonce.
	rowForeign
	// rowDeclined: refused on a facilitator's word, so that the payment may be
	// made after all.
	rowDeclined
	// rowStands: in doubt, paid, answered, or refused by evidence.
	rowStands
)

// admitRule is one row of the admission table.
type admitRule struct {
	terms  termsFit
	signer signer
	row    row
	to     admission
}

// admissions is the table. The first row that fits is taken; every combination
// that can occur has one.
func admissions() []admitRule {
	return []admitRule{
		{termsOK, signerRecovered, rowUnread, admitToday},
		{anyTerms, anySigner, rowUnread, admitFetch},
		{anyTerms, anySigner, rowForeign, turnNonce},
		{termsBad, anySigner, rowAbsent, turnTerms},
		{termsOK, anySigner, rowAbsent, admitVerify},
		{anyTerms, signerUnvouched, anyRow, turnUsed},
		{anyTerms, signerVouched, rowStands, admitRecord},
		{termsOK, signerVouched, rowDeclined, admitToday},
		{termsBad, signerVouched, rowDeclined, admitChain},
	}
}

// admissionOf decides about a payment, free of I/O. It returns 0 for a combination
// that no row names, which is a bug.
func admissionOf(terms termsFit, by signer, at row) admission {
	for _, r := range admissions() {
		if r.fits(terms, by, at) {
			return r.to
		}
	}
	return 0
}

func (r admitRule) fits(terms termsFit, by signer, at row) bool {
	return (r.terms == anyTerms || r.terms == terms) &&
		(r.signer == anySigner || r.signer == by) &&
		(r.row == anyRow || r.row == at)
}
