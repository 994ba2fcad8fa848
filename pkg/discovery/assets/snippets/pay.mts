import { setTimeout as sleep } from "node:timers/promises";
import { decodePaymentResponseHeader, x402Client, x402HTTPClient } from "@x402/fetch";
import { ExactEvmScheme } from "@x402/evm";
import { privateKeyToAccount } from "viem/accounts";

const url = "https://api.example.com/v1/tools/dns?domain=example.com&type=MX";
const headers: Record<string, string> = { Accept: "application/json" };
const account = privateKeyToAccount(process.env.PRIVATE_KEY as `0x${string}`);
const client = new x402HTTPClient(new x402Client().register("eip155:8453", new ExactEvmScheme(account)));

const offer = await fetch(url, { headers });
if (offer.status !== 402) throw new Error(`${offer.status} instead of an offer: ${await offer.text()}`);
const required = client.getPaymentRequiredResponse((name) => offer.headers.get(name));
Object.assign(headers, client.encodePaymentSignatureHeader(await client.createPaymentPayload(required)));

let answered = false;
process.on("SIGINT", () => process.exit(130));
process.on("exit", () => {
  if (answered) return;
  console.error("Not answered. If it was charged, this gets the answer for 24 hours, without a new charge:");
  console.error(`curl -i -H 'PAYMENT-SIGNATURE: ${headers["PAYMENT-SIGNATURE"]}' '${url}'`);
});

// While the answer may still come, send the same signature again: it is never
// charged twice. Signing anew would be a second payment.
for (const end = Date.now() + 90_000; ; ) {
  const answer = await fetch(url, { headers, signal: AbortSignal.timeout(40_000) }).catch(() => null);
  const body: any = await answer?.json().catch(() => null); // null: lost, or cut off
  const status = (body && answer?.status) || 0;
  const wait = Math.max(1, Number(answer?.headers.get("Retry-After")) || 3);
  const final = body?.error?.retryable === false;
  const mayCome = status === 0 || status === 409 || status === 429 || status >= 500;
  if (mayCome && !final && Date.now() + wait * 1000 < end) {
    console.error(`${status || "No answer"}: sending the same signature again in ${wait} s`);
    await sleep(wait * 1000);
    continue;
  }
  console.log(JSON.stringify(body, null, 2));
  answered = status === 200 || (final && body.error.charged !== null);
  const receipt = answer?.headers.get("PAYMENT-RESPONSE");
  console.error(status, receipt && decodePaymentResponseHeader(receipt));
  process.exitCode = status === 200 ? 0 : 1;
  break;
}
