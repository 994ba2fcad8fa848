# The weather as a tool, sold as the Python package of the x402 project shows it.
import os

import httpx
from mcp.server.fastmcp import FastMCP
from x402 import x402ResourceServer
from x402.http import FacilitatorConfig, HTTPFacilitatorClient
from x402.mcp.server import create_payment_wrapper
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.schemas import ResourceConfig

sells = x402ResourceServer(HTTPFacilitatorClient(FacilitatorConfig(url=os.environ["FACILITATOR"])))
sells.register("eip155:8453", ExactEvmServerScheme())
sells.initialize()
terms = ResourceConfig(scheme="exact", pay_to=os.environ["PAY_TO"], price="$" + os.environ["PRICE"], network="eip155:8453")
server = FastMCP("weather", host="127.0.0.1", port=int(os.environ["PORT"]))


@server.tool()
@create_payment_wrapper(sells, accepts=sells.build_payment_requirements(terms))
async def weather(city: str) -> str:
    """The weather of a city."""
    async with httpx.AsyncClient() as station:
        answer = await station.get(os.environ["UPSTREAM"])
    answer.raise_for_status()
    return f"{city}: {answer.text}"


server.run(transport="streamable-http")
