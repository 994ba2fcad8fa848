import { createHash } from "node:crypto";
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { ExactEvmScheme } from "@x402/evm";
import { extractJWSHeader, extractReceiptFromResponse, isJWSSignedReceipt, verifyReceiptSignatureJWS } from "@x402/extensions/offer-receipt";
import { privateKeyToAccount } from "viem/accounts";

const url = new URL("https://api.example.com/v1/tools/dns?domain=example.com&type=MX");
url.hostname = url.hostname.replace(/\.$/, ""); // the key of a host has its name without the dot
const account = privateKeyToAccount(process.env.PRIVATE_KEY as `0x${string}`);
const pay = wrapFetchWithPayment(fetch, new x402Client().register("eip155:8453", new ExactEvmScheme(account)));
const key = process.env.IDEMPOTENCY_KEY || crypto.randomUUID();
console.error("IDEMPOTENCY_KEY=" + key); // run again with it, and nothing more is charged
const answer = await pay(url.href, { headers: { "Idempotency-Key": key } });
const body = Buffer.from(await answer.arrayBuffer()); // the bytes as they came: what is signed is their digest
console.log(JSON.stringify(JSON.parse(body.toString()), null, 2));
console.error(answer.status);

const wrong: string[] = []; // what is proven false
const open: string[] = []; // what is not proven, and may be true
let said: any; // the receipt, when its signature is good
const receipt = extractReceiptFromResponse(answer);
const kid = receipt && isJWSSignedReceipt(receipt) ? extractJWSHeader(receipt.signature).kid ?? "" : "";
if (!receipt || !isJWSSignedReceipt(receipt)) {
  open.push("none came with this answer");
} else if (!kid.startsWith("did:web:" + url.host.replaceAll(":", "%3A") + "#")) {
  // The package reads the key that the receipt names. Whose key it may be is for us to say.
  open.push(`it is signed by ${kid}, and ${url.host} was asked`);
} else {
  try {
    said = await verifyReceiptSignatureJWS(receipt);
    checkPayment();
    await checkQuestion();
  } catch (error: any) {
    const forged = error.code === "ERR_JWS_SIGNATURE_VERIFICATION_FAILED";
    (forged ? wrong : open).push(`${kid}: ${error.message}`);
  }
}
const verdict = wrong.length ? "DOES NOT HOLD:" : open.length ? "is NOT PROVEN:" : "holds:";
console.error("The receipt", verdict, [...wrong, ...open].join("; ") || kid, said ?? "");
process.exitCode = answer.ok && verdict === "holds:" ? 0 : 1;

/** Compares who paid, where, in which transaction, and for which bytes. */
function checkPayment() {
  const settled = decodePaymentResponseHeader(answer.headers.get("PAYMENT-RESPONSE")!);
  const differ = (a: string, b: string) => a.toLowerCase() !== b.toLowerCase();
  if (differ(said.payer, account.address)) wrong.push(`it is for the payer ${said.payer}`);
  if (said.network !== settled.network) wrong.push(`it is for the network ${said.network}`);
  if (said.transaction && settled.transaction && differ(said.transaction, settled.transaction)) wrong.push(`it is for the transaction ${said.transaction}`);
  if (said.responseHashAlg !== "sha256" || said.responseHashEncoding !== "raw") open.push("it does not say which bytes were answered");
  else if (said.responseHash !== "0x" + createHash("sha256").update(body).digest("hex")) wrong.push("it is for another answer");
}

/**
 * Compares the questions. A receipt has the parameters as the service reads them: names in lower case, types in
 * upper case, defaults too, and none that it does not know. The catalog says which there are.
 */
async function checkQuestion() {
  if (!said.request) return open.push("it does not say what was asked");
  const [method, target] = said.request.split(" ");
  const read = new URL(target, url);
  const place = (u: URL) => decodeURI(u.origin + u.pathname);
  if (method !== "GET" || place(read) !== place(url) || place(new URL(said.resourceUrl)) !== place(url)) {
    return wrong.push(`it is for ${said.request} of ${said.resourceUrl}`);
  }
  const catalog: any = await fetch(new URL("/v1/catalog", url)).then((r) => r.json()).catch(() => null);
  const known: any[] | undefined = catalog?.tools?.find((tool: any) => tool.path === decodeURI(url.pathname))?.parameters;
  for (const name of new Set([...url.searchParams.keys(), ...read.searchParams.keys()])) {
    const ours = url.searchParams.get(name), theirs = read.searchParams.get(name);
    const { default: usual, required } = known?.find((p) => p.name === name) ?? {};
    if (ours && theirs) {
      if ([ours, hostname(ours)].some((as) => as.toLowerCase() === theirs.toLowerCase())) continue;
      const unlike = /^[ -~]*$/.test(ours); // of other letters two libraries may make two names
      (unlike ? wrong : open).push(`it is for ${name}=${theirs}, and ${ours} was asked`);
    } else if (theirs && theirs !== String(usual)) {
      open.push(`it is for ${name}=${theirs}, which was not asked`);
    } else if (!theirs && (required || usual !== undefined || !known)) {
      open.push(`it does not say ${name}`);
    }
  }
}

/** The name of a host as it is looked up: in ASCII, and without the last dot. */
function hostname(name: string) {
  return URL.canParse("https://" + name) ? new URL("https://" + name).hostname.replace(/\.$/, "") : name;
}
