// Holds receipts to the unmodified @x402/extensions. Comes in as lines of JSON, a
// job each, and each is answered by one line.
import { createHash, createPrivateKey, sign } from "node:crypto";
import { createInterface } from "node:readline";
import {
  createJWS, decodeSignedOffers, extractJWSHeader, extractOffersFromPaymentRequired, extractReceiptFromResponse, findAcceptsObjectFromSignedOffer,
  isJWSSignedOffer, isJWSSignedReceipt, verifyOfferSignatureJWS, verifyReceiptMatchesOffer, verifyReceiptSignatureJWS,
} from "@x402/extensions/offer-receipt";

/** A seed as a private key: RFC 8032 in the PKCS #8 of RFC 8410. */
const privateKey = (seed) => createPrivateKey({ key: Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.from(seed, "base64url")]), format: "der", type: "pkcs8" });

const jobs = {
  /** What an answer says, and whether what the package says of it is so. */
  async answer({ header, body, required, payers }) {
    const bytes = Buffer.from(body, "base64");
    const response = new Response(bytes, { headers: { "PAYMENT-RESPONSE": header } });
    const receipt = extractReceiptFromResponse(response);
    if (!receipt) return { found: false };
    const offered = JSON.parse(Buffer.from(required, "base64"));
    const [offer, ...more] = decodeSignedOffers(extractOffersFromPaymentRequired(offered));
    const terms = await verifyOfferSignatureJWS(offer.signedOffer); // by the key of its DID
    const said = await verifyReceiptSignatureJWS(receipt); // by the key of its DID
    return {
      found: true, jws: isJWSSignedReceipt(receipt), kid: extractJWSHeader(receipt.signature).kid, signature: receipt.signature, said,
      hash: "0x" + createHash("sha256").update(Buffer.from(await response.arrayBuffer())).digest("hex"),
      offered: isJWSSignedOffer(offer.signedOffer) && more.length === 0 && terms.resourceUrl === offered.resource.url &&
        findAcceptsObjectFromSignedOffer(offer, offered.accepts) === offered.accepts[0],
      offerKid: extractJWSHeader(offer.signedOffer.signature).kid,
      matches: verifyReceiptMatchesOffer(receipt, offer, payers),
      matchesOther: verifyReceiptMatchesOffer(receipt, { ...offer, resourceUrl: offer.resourceUrl + "/other" }, payers),
    };
  },
  /** A receipt as the package signs it. */
  sign: async ({ payload, kid, seed }) => ({
    signature: await createJWS(payload, { kid, format: "jws", algorithm: "EdDSA", sign: async (bytes) => sign(null, bytes, privateKey(seed)).toString("base64url") }),
  }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { job, ...rest } = JSON.parse(line);
  const out = await jobs[job](rest).catch((error) => ({ failed: String(error) }));
  process.stdout.write(JSON.stringify(out) + "\n");
}
