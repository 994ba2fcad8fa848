import { createHash } from "node:crypto";
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { ExactEvmScheme } from "@x402/evm";
import { extractJWSHeader, extractReceiptFromResponse, isJWSSignedReceipt, verifyReceiptSignatureJWS } from "@x402/extensions/offer-receipt";
import { privateKeyToAccount } from "viem/accounts";

const url = new URL("https://api.example.com/v1/tools/dns?domain=example.com&type=MX");
url.searchParams.sort(); // as the receipt has them
const account = privateKeyToAccount(process.env.PRIVATE_KEY as `0x${string}`);
const pay = wrapFetchWithPayment(fetch, new x402Client().register("eip155:8453", new ExactEvmScheme(account)));
const headers = { "Idempotency-Key": process.env.IDEMPOTENCY_KEY ?? "" };
const answer = await pay(url.href, { headers });
const body = Buffer.from(await answer.arrayBuffer()); // the bytes as they came: what is signed is their digest

console.log(JSON.stringify(JSON.parse(body.toString()), null, 2));
console.error(answer.status);
process.exitCode = answer.ok ? 0 : 1;
const receipt = extractReceiptFromResponse(answer);
if (receipt && isJWSSignedReceipt(receipt)) {
  // The package reads the key of the name that is in the receipt. Whose key that
  // may be is for the reader to say: it is one of the host that was asked.
  const kid = extractJWSHeader(receipt.signature).kid ?? "";
  const ours = kid.startsWith("did:web:" + url.host.replace(":", "%3A") + "#");
  const said: any = ours && await verifyReceiptSignatureJWS(receipt); // throws when the signature is not that key's
  const settled = decodePaymentResponseHeader(answer.headers.get("PAYMENT-RESPONSE")!);
  const same = (a: string, b = "") => a.toLowerCase() === b.toLowerCase();
  const holds = ours && said.resourceUrl === url.origin + url.pathname &&
    said.request === `GET ${url.pathname}?${url.searchParams}` && said.network === settled.network &&
    same(said.transaction ?? "", settled.transaction) && same(said.payer, account.address) &&
    said.responseHashAlg === "sha256" && said.responseHashEncoding === "raw" &&
    said.responseHash === "0x" + createHash("sha256").update(body).digest("hex");
  console.error(holds ? "The receipt holds:" : "The receipt DOES NOT HOLD:", kid, said);
  if (!holds) process.exitCode = 1;
} else {
  console.error("No receipt came with this answer.");
  process.exitCode = 1;
}
