package discovery

import (
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// receiptsAnchor is the chapter on receipts of the documentation page.
const receiptsAnchor = "receipts"

// receiptNote is what the short texts say of receipts; nothing where no key is
// published.
func receiptNote(s Site) string {
	if len(s.ReceiptKeys) == 0 {
		return ""
	}
	return "An answer that uses up the payment comes with a signed receipt, in `" + x402.HeaderResponse +
		"` at `extensions[\"offer-receipt\"].info.receipt`: a compact JWS that names the request, the payer and the transaction and has the SHA-256 of the body, byte for byte. " +
		"Its key is in " + s.Origin + receipt.Path + ", and " + s.Origin + catalog.PathDocs + "#" + receiptsAnchor + " has a program that checks one."
}

// receiptText is the chapter on receipts.
func receiptText(s Site) []string {
	if len(s.ReceiptKeys) == 0 {
		return []string{"This service has no key for receipts: its answers come with a `" + x402.HeaderResponse + "` that nobody has signed."}
	}
	return []string{
		"An answer that uses up the payment, an error such as `nxdomain` included, comes with a signed receipt: the service's word that this payer was given these bytes, for this request and this transaction, at this time. " +
			"Who keeps the body byte for byte, and the receipt, can show it to anybody. It does not prove that what the body says is true.",
		"It is in `" + x402.HeaderResponse + "` at `extensions[\"offer-receipt\"].info.receipt`, in version 1 of the x402 extension `offer-receipt` with the format `jws`: a compact JWS with EdDSA (Ed25519). " +
			"`request` and the members that begin with `responseHash` are not in version 1, whose verifiers keep them; the latter have the names of the proposal for version 2. " +
			"There is one receipt for one answer, over HTTP and MCP: the answer that is replayed comes with the same one.",
		"The key is named by the `kid` of the header, the DID of the host with the thumbprint of the key (RFC 7638), and published in `" + receipt.Path + "` of the same host. " +
			"Keys that are no longer used stay there, so that what they have signed can be checked. What a key signed that was taken away holds no more.",
		"The offer is signed in the same way, at `extensions[\"offer-receipt\"].info.offers` of `" + x402.HeaderRequired + "`: the terms, without an end. " +
			"An offer without a signature is as good to pay.",
	}
}
