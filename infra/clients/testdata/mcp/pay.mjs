// Signs the payment that a tool's result requires, as an agent's wallet does, and parses what
// a facilitator would list about the tool.
import { randomUUID } from "node:crypto";
import { x402Client } from "@x402/core/client";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { extractDiscoveryInfo, validateDiscoveryExtensionSpec } from "@x402/extensions/bazaar";
import { privateKeyToAccount } from "viem/accounts";

async function payment(required) {
  const client = new x402Client();
  client.register("eip155:*", new ExactEvmScheme(privateKeyToAccount(process.env.PRIVATE_KEY)));
  return client.createPaymentPayload(required);
}

// play lists the tools, asks one for its price, pays, and sends the same payment again. With a
// third argument it acts as an agent's host: it only calls the tool until it gets an answer,
// and signs a new payment for each call.
export async function play(client) {
  const [, , , name, args, host] = process.argv;
  if (host) return answered(client, { name, arguments: JSON.parse(args) });
  const tools = (await client.listTools()).tools.map((t) => t.name);
  const call = { name, arguments: JSON.parse(args) };
  const unpaid = await client.callTool(call);
  const signed = await payment(unpaid.structuredContent);
  const { bazaar } = unpaid.structuredContent.extensions ?? {};
  const listing = bazaar && {
    ...validateDiscoveryExtensionSpec(bazaar),
    entry: extractDiscoveryInfo(signed, unpaid.structuredContent.accepts[0]),
  };
  const paying = { ...call, _meta: { "x402/payment": signed, "x402/idempotency-key": randomUUID() } };
  const paid = await client.callTool(paying);
  const again = await client.callTool(paying);
  const wrong = await client.callTool({ name, arguments: { nothing: "here" } });
  console.log(JSON.stringify({ tools, unpaid, listing, paid, again, wrong }));
  await client.close();
}

async function answered(client, call) {
  const told = [];
  while (told.length < 5) {
    try {
      const signed = await payment((await client.callTool(call)).structuredContent);
      const paid = await client.callTool({ ...call, _meta: { "x402/payment": signed } });
      console.log(JSON.stringify({ told, paid }));
      return client.close();
    } catch (error) {
      told.push(String(error)); // the SDK's time-out
    }
  }
  throw new Error(told.join("; "));
}
