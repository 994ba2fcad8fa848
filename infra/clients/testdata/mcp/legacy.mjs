// A client with the TypeScript SDK 1.x. The SDK uses the protocol revisions with a handshake,
// and validates all structured content, even that of errors, against the output schema.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { play } from "./pay.mjs";

const client = new Client({ name: "legacy", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
await play(client);
