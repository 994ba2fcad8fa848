import json
import os
import sys

from eth_account import Account
from urllib3.util import Retry
from x402 import x402ClientSync
from x402.http import decode_payment_response_header
from x402.http.clients import x402_requests
from x402.mechanisms.evm.exact import ExactEvmScheme

URL = "https://api.example.com/v1/tools/dns?domain=example.com&type=MX"

client = x402ClientSync()
client.register("eip155:8453", ExactEvmScheme(Account.from_key(os.environ["PRIVATE_KEY"])))

# While there is no answer yet, send the same signature again: it is never
# charged twice. Signing anew would be a second payment.
patience = Retry(total=5, backoff_factor=1, status_forcelist=[409, 429, 503, 504], raise_on_status=False)

with x402_requests(client, max_retries=patience) as session:
    answer = session.get(URL, headers={"Accept": "application/json"}, timeout=60)

receipt = answer.headers.get("PAYMENT-RESPONSE")
print(answer.status_code, receipt and decode_payment_response_header(receipt), file=sys.stderr)
print(json.dumps(answer.json(), indent=2))
sys.exit(0 if answer.ok else 1)
