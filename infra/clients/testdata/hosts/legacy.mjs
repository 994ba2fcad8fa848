// A host made with the TypeScript SDK 1.x, which validates structured content against the
// output schema. Usage: legacy.mjs TOOL ARGUMENTS COMMAND...
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { play } from "./play.mjs";

const [tool, args, command, ...rest] = process.argv.slice(2);
const client = new Client({ name: "legacy", version: "1" });
await client.connect(new StdioClientTransport({ command, args: rest, env: process.env }));
await play(client, tool, args);
