// The client of the TypeScript SDK 1.x, which speaks the revisions with a
// handshake and holds structured content to the output schema, errors included.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { play } from "./pay.mjs";

const client = new Client({ name: "legacy", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
await play(client);
