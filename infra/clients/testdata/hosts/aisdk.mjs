// A host made with the AI SDK. Usage: aisdk.mjs TOOL ARGUMENTS COMMAND...
import { createMCPClient } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport as StdioMCPTransport } from "@ai-sdk/mcp/mcp-stdio";

const [tool, args, command, ...rest] = process.argv.slice(2);
const client = await createMCPClient({ transport: new StdioMCPTransport({ command, args: rest, env: process.env }) });
const tools = await client.tools();
const told = [];
for (let i = 0; i < 2; i++) {
  const result = await tools[tool].execute(JSON.parse(args), { toolCallId: `call-${i}`, messages: [] });
  told.push(result.content[0].text);
}
console.log(JSON.stringify({ tools: Object.keys(tools), told }));
await client.close();
