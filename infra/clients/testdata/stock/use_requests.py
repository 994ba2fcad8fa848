"""x402 with requests as its README shows it, a client for every call."""

import json
import sys
import threading
import time

from eth_account import Account
from x402 import x402ClientSync
from x402.http.clients import x402_requests
from x402.mechanisms.evm.exact import ExactEvmScheme


def buy(url, network, key, headers, timeout, report, **_):
    client = x402ClientSync().register(network, ExactEvmScheme(Account.from_key(key)))
    with x402_requests(client) as session:
        options = {"headers": headers, "timeout": timeout or None}
        response = session.post(url, **options, **posted(**report)) if report else session.get(url, **options)
        return {"status": response.status_code, "body": response.text}


def posted(kind, city, notes):
    if kind == "json":
        return {"json": {"city": city, "notes": notes}}
    if kind == "form":
        return {"data": {"city": city, "notes": notes}}
    return {"data": {"city": city}, "files": {"notes": ("notes.txt", notes.encode(), "text/plain")}}


# The loop is that of loop.mjs.
def loop(purchase, pause):
    told = []

    def until_200():
        while True:
            try:
                got = buy(**purchase)
            except Exception as error:  # no whole answer
                got = {"status": 0, "body": repr(error)}
            told.append(got["status"])
            if got["status"] == 200 or len(told) >= purchase["calls"]:
                return got
            time.sleep(pause / 1000)

    answer = until_200()
    again = until_200() if answer["status"] == 200 and not purchase["once"] else answer
    # print writes a line and its end apart, and another thread may come between.
    line = json.dumps({"id": purchase["id"], "told": told, "answer": answer, "again": again}) + "\n"
    print(line, end="", flush=True)


def loops(pause, purchases):
    side_by_side = [threading.Thread(target=loop, args=(p, pause)) for p in purchases]
    for thread in side_by_side:
        thread.start()
    for thread in side_by_side:
        thread.join()


print("ready", flush=True)
loops(**json.loads(sys.stdin.readline()))
