// Lists the tools and calls one of them twice. It prints the tools, whether a person must be
// asked before each, and the two answers.
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
