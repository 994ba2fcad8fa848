# The Python SDK. Usage: sdk.py TOOL ARGUMENTS COMMAND...
import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    tool, arguments, command, *args = sys.argv[1:]
    async with stdio_client(StdioServerParameters(command=command, args=args)) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            tools = (await session.list_tools()).tools
            told = [await session.call_tool(tool, json.loads(arguments)) for _ in range(2)]
            print(json.dumps({
                "tools": [t.name for t in tools],
                "asks": [not (t.annotations and t.annotations.readOnlyHint) for t in tools],
                "told": [r.content[0].text for r in told],
            }))


asyncio.run(main())
