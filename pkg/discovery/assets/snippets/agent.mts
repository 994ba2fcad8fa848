import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { x402Client } from "@x402/core/client";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";

const account = privateKeyToAccount(process.env.PRIVATE_KEY as `0x${string}`);
const wallet = new x402Client().register("eip155:8453", new ExactEvmScheme(account));
const agent = new Client({ name: "agent", version: "1.0.0" });
await agent.connect(new StreamableHTTPClientTransport(new URL("https://api.example.com/mcp")));

const call = { name: "dns_lookup", arguments: { domain: "example.com", type: "MX" } };
const price = await agent.callTool(call); // free: its structuredContent is what must be paid
const payment = await wallet.createPaymentPayload(price.structuredContent as Parameters<typeof wallet.createPaymentPayload>[0]);
const key = process.env.IDEMPOTENCY_KEY || crypto.randomUUID();
console.error("IDEMPOTENCY_KEY=" + key); // run again with it, and nothing more is charged
const answer = await agent.callTool({ ...call, _meta: { "x402/payment": payment, "x402/idempotency-key": key } });
await agent.close();

console.log(JSON.stringify(answer.isError ? null : answer.structuredContent, null, 2));
console.error(answer.isError ? answer.content : answer._meta?.["x402/payment-response"]);
process.exitCode = answer.isError ? 1 : 0;
