import json
import os
import sys
import time

import requests
from eth_account import Account
from x402 import x402ClientSync
from x402.http import decode_payment_response_header, x402HTTPClientSync
from x402.mechanisms.evm.exact import ExactEvmScheme

URL = "https://api.example.com/v1/tools/dns?domain=example.com&type=MX"
headers = {"Accept": "application/json"}

client = x402ClientSync()
client.register("eip155:8453", ExactEvmScheme(Account.from_key(os.environ["PRIVATE_KEY"])))

offer = requests.get(URL, headers=headers, timeout=40)
if offer.status_code != 402:
    sys.exit(f"{offer.status_code} instead of an offer: {offer.text}")
signed, _ = x402HTTPClientSync(client).handle_402_response(dict(offer.headers), offer.content, URL)
headers.update(signed)

# While the answer may still come, send the same signature again: it is never
# charged twice. Signing anew would be a second payment.
answered, end = False, time.monotonic() + 90
try:
    while True:
        try:
            answer = requests.get(URL, headers=headers, timeout=40)
            status, body, reply = answer.status_code, answer.json(), answer.headers
        except requests.RequestException as lost:  # or cut off
            status, body, reply = 0, str(lost), {}
        wait = reply.get("Retry-After", "")
        wait = max(1, int(wait)) if wait.isdecimal() else 3
        error = body.get("error") if isinstance(body, dict) else None
        final = isinstance(error, dict) and error.get("retryable") is False
        may_come = status in (0, 409, 429) or status >= 500
        if may_come and not final and time.monotonic() + wait < end:
            print(f"{status or body}: sending the same signature again in {wait} s", file=sys.stderr)
            time.sleep(wait)
            continue
        print(json.dumps(body, indent=2))
        answered = status == 200 or (final and error.get("charged") is not None)
        receipt = reply.get("PAYMENT-RESPONSE")
        print(status, receipt and decode_payment_response_header(receipt), file=sys.stderr)
        sys.exit(0 if status == 200 else 1)
finally:
    if not answered:
        print("Not answered. If it was charged, this gets the answer for 24 hours, without a new charge:", file=sys.stderr)
        print(f"curl -i -H 'PAYMENT-SIGNATURE: {headers['PAYMENT-SIGNATURE']}' '{URL}'", file=sys.stderr)
