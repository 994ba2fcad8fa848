import os, sys, uuid
from eth_account import Account
from x402 import x402ClientSync
from x402.http.clients import x402_requests
from x402.mechanisms.evm.exact import ExactEvmScheme
print("IDEMPOTENCY_KEY=" + (key := os.environ.get("IDEMPOTENCY_KEY") or str(uuid.uuid4())), file=sys.stderr)  # run again with it, and nothing more is charged
answer = x402_requests(x402ClientSync().register("eip155:8453", ExactEvmScheme(Account.from_key(os.environ["PRIVATE_KEY"])))).get("https://api.example.com/v1/tools/dns?domain=example.com&type=MX", headers={"Idempotency-Key": key})
print(answer.status_code, answer.text)
