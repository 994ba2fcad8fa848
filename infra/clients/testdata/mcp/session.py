# The x402 project's own MCP session: it asks for the price, signs, pays and reads
# the settlement.
import asyncio
import json
import os
import sys

from eth_account import Account
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from x402 import x402Client
from x402.mcp.client import x402MCPSession
from x402.mechanisms.evm import EthAccountSigner
from x402.mechanisms.evm.exact import register_exact_evm_client


def result(r) -> dict:
    receipt = r.payment_response.model_dump() if r.payment_made else None
    return {"isError": r.is_error, "content": [{"text": r.content[0].text}], "_meta": {"x402/payment-response": receipt}}


async def main() -> None:
    url, tool, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    payer = x402Client()
    register_exact_evm_client(payer, EthAccountSigner(Account.from_key(os.environ["PRIVATE_KEY"])))
    async with streamablehttp_client(url) as (read, write, _):
        async with ClientSession(read, write) as inner:
            session = x402MCPSession(inner, payer, True)
            await session.initialize()
            tools = [t.name for t in (await session.list_tools()).tools]
            paid = await session.call_tool(tool, arguments)
            wrong = await session.call_tool(tool, {"nothing": "here"})
            print(json.dumps({"tools": tools, "paid": result(paid), "wrong": result(wrong)}))


asyncio.run(main())
