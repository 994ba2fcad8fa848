// A client with the TypeScript SDK 2.x. ERA says how the SDK negotiates a protocol revision.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { play } from "./pay.mjs";

const eras = { legacy: undefined, auto: { mode: "auto" }, modern: { mode: { pin: "2026-07-28" } } };
const client = new Client({ name: "modern", version: "1" }, { versionNegotiation: eras[process.env.ERA] });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
await play(client);
