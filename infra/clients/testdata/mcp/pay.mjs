// Signs what a result asks for, as an agent's wallet does, and looks at what a
// facilitator would list.
import { x402Client } from "@x402/core/client";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { extractDiscoveryInfo, validateDiscoveryExtensionSpec } from "@x402/extensions/bazaar";
import { privateKeyToAccount } from "viem/accounts";

async function payment(required) {
  const client = new x402Client();
  client.register("eip155:*", new ExactEvmScheme(privateKeyToAccount(process.env.PRIVATE_KEY)));
  return client.createPaymentPayload(required);
}

// play lists the tools, asks one for its price, pays, and sends the payment again.
export async function play(client) {
  const [, , , name, args] = process.argv;
  const tools = (await client.listTools()).tools.map((t) => t.name);
  const call = { name, arguments: JSON.parse(args) };
  const unpaid = await client.callTool(call);
  const signed = await payment(unpaid.structuredContent);
  const listing = {
    ...validateDiscoveryExtensionSpec(unpaid.structuredContent.extensions.bazaar),
    entry: extractDiscoveryInfo(signed, unpaid.structuredContent.accepts[0]),
  };
  const paying = { ...call, _meta: { "x402/payment": signed } };
  const paid = await client.callTool(paying);
  const again = await client.callTool(paying);
  const wrong = await client.callTool({ name, arguments: { nothing: "here" } });
  console.log(JSON.stringify({ tools, unpaid, listing, paid, again, wrong }));
  await client.close();
}
