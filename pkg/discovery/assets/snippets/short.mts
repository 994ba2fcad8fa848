import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { ExactEvmScheme } from "@x402/evm";
import { privateKeyToAccount } from "viem/accounts";
const account = privateKeyToAccount(process.env.PRIVATE_KEY as `0x${string}`);
const pay = wrapFetchWithPayment(fetch, new x402Client().register("eip155:8453", new ExactEvmScheme(account)));
const headers = { "Idempotency-Key": process.env.IDEMPOTENCY_KEY ?? "" }; // the same for every attempt
const answer = await pay("https://api.example.com/v1/tools/dns?domain=example.com&type=MX", { headers });
console.log(answer.status, await answer.text());
