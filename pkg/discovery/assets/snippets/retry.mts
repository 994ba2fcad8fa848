import { setTimeout as sleep } from "node:timers/promises";
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { ExactEvmScheme } from "@x402/evm";
import { privateKeyToAccount } from "viem/accounts";

const url = "https://api.example.com/v1/tools/dns?domain=example.com&type=MX";
const account = privateKeyToAccount(process.env.PRIVATE_KEY as `0x${string}`);
const pay = wrapFetchWithPayment(fetch, new x402Client().register("eip155:8453", new ExactEvmScheme(account)));

// One key for every attempt: each attempt makes a new signature, and all of
// them are one purchase, which is charged once.
const key = process.env.IDEMPOTENCY_KEY || crypto.randomUUID();
console.error("IDEMPOTENCY_KEY=" + key);
let answered = false;
process.on("SIGINT", () => process.exit(130));
process.on("exit", () => {
  if (answered) return;
  console.error("Not answered. If it was charged, this gets the answer for 24 hours, without a new charge:");
  console.error(`IDEMPOTENCY_KEY=${key} PRIVATE_KEY=0x… npx tsx retry.mts`);
});

for (const end = Date.now() + 90_000; ; ) {
  let lost = "No answer";
  const answer = await pay(url, { headers: { "Idempotency-Key": key }, signal: AbortSignal.timeout(60_000) })
    .catch((error) => { lost = String(error); });
  const body: any = await answer?.json().catch(() => null); // null: cut off
  const status = (body && answer?.status) || 0;
  const wait = Math.max(1, Number(answer?.headers.get("Retry-After")) || 3);
  const final = body?.error?.retryable === false;
  const mayCome = status === 0 || status === 409 || status === 429 || status >= 500;
  if (mayCome && !final && Date.now() + wait * 1000 < end) {
    console.error(`${status || lost}: asking again in ${wait} s`);
    await sleep(wait * 1000);
    continue;
  }
  console.log(JSON.stringify(body, null, 2));
  answered = status === 200 || (final && body.error.charged !== null);
  const receipt = answer?.headers.get("PAYMENT-RESPONSE");
  console.error(status || lost, receipt && decodePaymentResponseHeader(receipt));
  process.exitCode = status === 200 ? 0 : 1;
  break;
}
