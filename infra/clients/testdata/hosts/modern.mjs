// A host made with the TypeScript SDK 2.x. With ERA=auto it uses the revision without a
// handshake. Usage: modern.mjs TOOL ARGUMENTS COMMAND...
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { play } from "./play.mjs";

const [tool, args, command, ...rest] = process.argv.slice(2);
const options = process.env.ERA === "auto" ? { versionNegotiation: { mode: "auto" } } : {};
const client = new Client({ name: "modern", version: "1" }, options);
await client.connect(new StdioClientTransport({ command, args: rest, env: process.env }));
await play(client, tool, args);
