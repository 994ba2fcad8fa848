import os
from eth_account import Account
from x402 import x402ClientSync
from x402.http.clients import x402_requests
from x402.mechanisms.evm.exact import ExactEvmScheme
client = x402ClientSync().register("eip155:8453", ExactEvmScheme(Account.from_key(os.environ["PRIVATE_KEY"])))
answer = x402_requests(client).get("https://api.example.com/v1/tools/dns?domain=example.com&type=MX", headers={"Idempotency-Key": os.environ["IDEMPOTENCY_KEY"]})
print(answer.status_code, answer.text)
