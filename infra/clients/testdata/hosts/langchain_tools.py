# LangChain's adapter for MCP. Usage: langchain_tools.py TOOL ARGUMENTS COMMAND...
import asyncio
import json
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient


def text(answer: object) -> str:
    return answer if isinstance(answer, str) else answer[0]["text"]


async def main() -> None:
    tool, arguments, command, *args = sys.argv[1:]
    client = MultiServerMCPClient({"paid": {"transport": "stdio", "command": command, "args": args}})
    tools = {t.name: t for t in await client.get_tools()}
    told = [text(await tools[tool].ainvoke(json.loads(arguments))) for _ in range(2)]
    print(json.dumps({"tools": list(tools), "told": told}))


asyncio.run(main())
