// Lists the tools, calls one twice, and prints what it was told.
export async function play(client, tool, args) {
  const { tools } = await client.listTools();
  const told = [];
  for (let i = 0; i < 2; i++) {
    const result = await client.callTool({ name: tool, arguments: JSON.parse(args) });
    told.push(result.content[0].text);
  }
  console.log(JSON.stringify({ tools: tools.map((t) => t.name), asks: tools.map((t) => !t.annotations?.readOnlyHint), told }));
  await client.close();
}
