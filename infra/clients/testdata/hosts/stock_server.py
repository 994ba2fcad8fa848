# A paid MCP server as the Python package of the x402 project makes one: it keeps no records.
# Usage: stock_server.py FACILITATOR PAYEE PORT
import sys

from mcp.server.fastmcp import FastMCP
from x402 import x402ResourceServer
from x402.http import FacilitatorConfig, HTTPFacilitatorClient
from x402.mcp.server import create_payment_wrapper
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.schemas import ResourceConfig

facilitator, payee, port = sys.argv[1:]
sells = x402ResourceServer(HTTPFacilitatorClient(FacilitatorConfig(url=facilitator)))
sells.register("eip155:8453", ExactEvmServerScheme())
sells.initialize()
terms = ResourceConfig(scheme="exact", pay_to=payee, price="$0.002", network="eip155:8453")
server = FastMCP("stock", host="127.0.0.1", port=int(port))


@server.tool()
@create_payment_wrapper(sells, accepts=sells.build_payment_requirements(terms))
def greet(name: str) -> str:
    """Greets somebody."""
    return f"hello {name}"


server.run(transport="streamable-http")
