import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { ExactEvmScheme } from "@x402/evm";
import { privateKeyToAccount } from "viem/accounts";

const account = privateKeyToAccount(process.env.PRIVATE_KEY as `0x${string}`);
const pay = wrapFetchWithPayment(fetch, new x402Client().register("eip155:8453", new ExactEvmScheme(account)));
const key = process.env.IDEMPOTENCY_KEY || crypto.randomUUID();
console.error("IDEMPOTENCY_KEY=" + key); // run again with it, and nothing more is charged
const answer = await pay("https://api.example.com/v1/tools/dns?domain=example.com&type=MX", { headers: { "Idempotency-Key": key } });

console.log(JSON.stringify(await answer.json(), null, 2));
const receipt = answer.headers.get("PAYMENT-RESPONSE");
console.error(answer.status, receipt && decodePaymentResponseHeader(receipt));
process.exitCode = answer.ok ? 0 : 1;
