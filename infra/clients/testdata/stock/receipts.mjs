// Lets the unmodified @x402/extensions check receipts. Each line of JSON on stdin is a job,
// and is answered by one line.
import { createHash, createPrivateKey, sign } from "node:crypto";
import { createInterface } from "node:readline";
import {
  createJWS, decodeSignedOffers, extractJWSHeader, extractOffersFromPaymentRequired, extractReceiptFromResponse, findAcceptsObjectFromSignedOffer,
  isJWSSignedOffer, isJWSSignedReceipt, verifyOfferSignatureJWS, verifyReceiptMatchesOffer, verifyReceiptSignatureJWS,
} from "@x402/extensions/offer-receipt";

/** Returns an Ed25519 seed (RFC 8032) as a private key in PKCS #8 (RFC 8410). */
const privateKey = (seed) => createPrivateKey({ key: Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.from(seed, "base64url")]), format: "der", type: "pkcs8" });

const jobs = {
  /**
   * Checks an answer: what its receipt says, and whether what the package finds in it is
   * right.
   */
  async answer({ header, body, required, payers }) {
    const bytes = Buffer.from(body, "base64");
    const response = new Response(bytes, { headers: { "PAYMENT-RESPONSE": header } });
    const receipt = extractReceiptFromResponse(response);
    if (!receipt) return { found: false };
    const offered = JSON.parse(Buffer.from(required, "base64"));
    const [offer, ...more] = decodeSignedOffers(extractOffersFromPaymentRequired(offered));
    const terms = await verifyOfferSignatureJWS(offer.signedOffer); // with the key in the signer's DID document
    const said = await verifyReceiptSignatureJWS(receipt); // with the key in the signer's DID document
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
  /** Returns a receipt that the package has signed. */
  sign: async ({ payload, kid, seed }) => ({
    signature: await createJWS(payload, { kid, format: "jws", algorithm: "EdDSA", sign: async (bytes) => sign(null, bytes, privateKey(seed)).toString("base64url") }),
  }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { job, ...rest } = JSON.parse(line);
  const out = await jobs[job](rest).catch((error) => ({ failed: String(error) }));
  process.stdout.write(JSON.stringify(out) + "\n");
}
