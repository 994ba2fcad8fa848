"""Pays for an answer through a client that openapi-python-client has made of the
service's description, and reads it by the types that it gave it. The second answer is a
charged error with a status that the description does not declare: it has no type, and is
content."""

import asyncio
import json
import os
import sys

from eth_account import Account
from x402 import x402Client
from x402.http.clients import x402HttpxClient
from x402.mechanisms.evm.exact import ExactEvmScheme

from generated import Client
from generated.api.tools import dns_lookup
from generated.models import DnsLookupType, DnsResult, MxRecord


async def main(origin: str) -> None:
    payer = x402Client().register("eip155:8453", ExactEvmScheme(Account.from_key(os.environ["PRIVATE_KEY"])))
    async with x402HttpxClient(payer, base_url=origin) as paying:
        client = Client(base_url=origin).set_async_httpx_client(paying)
        answer = await dns_lookup.asyncio(client=client, domain="example.com", type_=DnsLookupType.MX)
        gone = await dns_lookup.asyncio_detailed(client=client, domain="gone.example.com")
    if not isinstance(answer, DnsResult):
        raise SystemExit(f"not a result: {answer}")
    exchanges: list[str] = [record.exchange for record in answer.records if isinstance(record, MxRecord)]
    error = json.loads(gone.content)["error"]
    undeclared = {"status": gone.status_code, "code": error["code"], "charged": error["charged"]}
    print(json.dumps({"gone": undeclared, "result": answer.to_dict(), "exchanges": exchanges}))


asyncio.run(main(sys.argv[1]))
