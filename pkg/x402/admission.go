package x402

// admission is what is done with a signed payment before it is claimed.
type admission int

const (
	// admitToday claims it under the terms that are offered now.
	admitToday admission = iota + 1
	// admitRecord claims it under the terms in its record.
	admitRecord
	// admitFetch reads its record first, because the header alone does not decide.
	admitFetch
	// admitVerify asks the facilitator about its signature first.
	admitVerify
	// admitChain asks the chain first: the payment was refused before and the
	// terms offered now refuse it too, but anybody can have submitted it since.
	admitChain
	// refuseTerms answers 402 with the difference from the terms offered now.
	refuseTerms
	// refuseUsed answers 402: the authorization was used before, and nothing
	// proves that its sender is the payer.
	refuseUsed
	// refuseNonce answers 402: the nonce was used for something else.
	refuseNonce
)

// termsFit says whether a payment fits the terms that are offered now.
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
	// signerUnknown: the payer cannot be recovered from the signature, which may
	// be a contract wallet's.
	signerUnknown
	// signerVouched: the record shows that the sender is the payer
	// (ledger.Record.Vouches).
	signerVouched
	// signerUnvouched: it does not. A settled authorization is public on the
	// chain, so anybody can send a copy.
	signerUnvouched
)

// row says what the ledger has under a payment's key.
type row int

const (
	anyRow row = iota
	// rowUnread: the ledger was not asked yet.
	rowUnread
	rowAbsent
	// rowForeign: it is of another authorization with the same nonce.
	rowForeign
	// rowDeclined: refused by a facilitator and not by evidence, so that the
	// payment can still be made.
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

// admissions is the table. The first row that fits decides; every combination
// that can occur has one.
func admissions() []admitRule {
	return []admitRule{
		{termsOK, signerRecovered, rowUnread, admitToday},
		{anyTerms, anySigner, rowUnread, admitFetch},
		{anyTerms, anySigner, rowForeign, refuseNonce},
		{termsBad, anySigner, rowAbsent, refuseTerms},
		{termsOK, anySigner, rowAbsent, admitVerify},
		{anyTerms, signerUnvouched, anyRow, refuseUsed},
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
