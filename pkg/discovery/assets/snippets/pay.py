import json
import os
import sys
import uuid

from eth_account import Account
from x402 import x402ClientSync
from x402.http import decode_payment_response_header
from x402.http.clients import x402_requests
from x402.mechanisms.evm.exact import ExactEvmScheme

client = x402ClientSync()
client.register("eip155:8453", ExactEvmScheme(Account.from_key(os.environ["PRIVATE_KEY"])))
key = os.environ.get("IDEMPOTENCY_KEY") or str(uuid.uuid4())
print("IDEMPOTENCY_KEY=" + key, file=sys.stderr)  # run again with it, and nothing more is charged
url = "https://api.example.com/v1/tools/dns?domain=example.com&type=MX"
answer = x402_requests(client).get(url, headers={"Idempotency-Key": key})

print(json.dumps(answer.json(), indent=2))
receipt = answer.headers.get("PAYMENT-RESPONSE")
print(answer.status_code, receipt and decode_payment_response_header(receipt), file=sys.stderr)
sys.exit(0 if answer.ok else 1)
