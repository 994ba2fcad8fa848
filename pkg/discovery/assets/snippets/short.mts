import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { ExactEvmScheme } from "@x402/evm";
import { privateKeyToAccount } from "viem/accounts";
const wallet = new x402Client().register("eip155:8453", new ExactEvmScheme(privateKeyToAccount(process.env.PRIVATE_KEY as `0x${string}`)));
const key = process.env.IDEMPOTENCY_KEY || crypto.randomUUID();
console.error("IDEMPOTENCY_KEY=" + key); // run again with it, and nothing more is charged
const answer = await wrapFetchWithPayment(fetch, wallet)("https://api.example.com/v1/tools/dns?domain=example.com&type=MX", { headers: { "Idempotency-Key": key } });
console.log(answer.status, await answer.text());
