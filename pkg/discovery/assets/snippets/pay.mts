import { setTimeout as sleep } from "node:timers/promises";
import { decodePaymentResponseHeader, wrapFetchWithPaymentFromConfig } from "@x402/fetch";
import { ExactEvmScheme } from "@x402/evm";
import { privateKeyToAccount } from "viem/accounts";

const url = "https://api.example.com/v1/tools/dns?domain=example.com&type=MX";
const account = privateKeyToAccount(process.env.PRIVATE_KEY as `0x${string}`);

// While there is no answer yet, send the same signature again: it is never
// charged twice. Signing anew would be a second payment.
const patient: typeof fetch = async (input, init) => {
  const request = new Request(input, init);
  for (let tries = 1; ; tries++) {
    const last = tries === 5 || !request.headers.has("PAYMENT-SIGNATURE");
    try {
      const answer = await fetch(request.clone());
      const wait = Number(answer.headers.get("Retry-After"));
      if (last || !wait) return answer;
      await sleep(wait * 1000);
    } catch (lost) {
      if (last) throw lost;
      await sleep(tries * 1000);
    }
  }
};

const pay = wrapFetchWithPaymentFromConfig(patient, {
  schemes: [{ network: "eip155:8453", client: new ExactEvmScheme(account) }],
});

const answer = await pay(url, { headers: { Accept: "application/json" } });
const receipt = answer.headers.get("PAYMENT-RESPONSE");
console.error(answer.status, receipt && decodePaymentResponseHeader(receipt));
console.log(JSON.stringify(await answer.json(), null, 2));
process.exitCode = answer.ok ? 0 : 1;
