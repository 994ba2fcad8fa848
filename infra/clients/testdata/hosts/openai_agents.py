# The OpenAI Agents SDK. Usage: openai_agents.py TOOL ARGUMENTS COMMAND...
import asyncio
import json
import sys

from agents.mcp import MCPServerStdio


async def main() -> None:
    tool, arguments, command, *args = sys.argv[1:]
    async with MCPServerStdio(params={"command": command, "args": args}, client_session_timeout_seconds=60) as server:
        tools = await server.list_tools()
        told = [await server.call_tool(tool, json.loads(arguments)) for _ in range(2)]
        print(json.dumps({"tools": [t.name for t in tools], "told": [r.content[0].text for r in told]}))


asyncio.run(main())
