"""x402 with httpx as its README shows it, a client for every call."""

import asyncio
import json
import sys

from eth_account import Account
from x402 import x402Client
from x402.http.clients import x402HttpxClient
from x402.mechanisms.evm.exact import ExactEvmScheme


async def buy(url, network, key, headers, timeout, report, **_):
    client = x402Client().register(network, ExactEvmScheme(Account.from_key(key)))
    async with x402HttpxClient(client, **({"timeout": timeout} if timeout else {})) as http:
        response = await (http.post(url, headers=headers, **posted(**report)) if report else http.get(url, headers=headers))
        return {"status": response.status_code, "body": response.text}


def posted(kind, city, notes):
    if kind == "json":
        return {"json": {"city": city, "notes": notes}}
    if kind == "form":
        return {"data": {"city": city, "notes": notes}}
    return {"data": {"city": city}, "files": {"notes": ("notes.txt", notes.encode(), "text/plain")}}


# The loop is that of loop.mjs.
async def loop(purchase, pause):
    told = []

    async def until_200():
        while True:
            try:
                got = await buy(**purchase)
            except Exception as error:  # no whole answer
                got = {"status": 0, "body": repr(error)}
            told.append(got["status"])
            if got["status"] == 200 or len(told) >= purchase["calls"]:
                return got
            await asyncio.sleep(pause / 1000)

    answer = await until_200()
    again = await until_200() if answer["status"] == 200 and not purchase["once"] else answer
    print(json.dumps({"id": purchase["id"], "told": told, "answer": answer, "again": again}), flush=True)


async def loops(pause, purchases):
    await asyncio.gather(*(loop(purchase, pause) for purchase in purchases))


print("ready", flush=True)
asyncio.run(loops(**json.loads(sys.stdin.readline())))
