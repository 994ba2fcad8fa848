# SIGNATURE holds base64 of the signed JSON, from any wallet or library.
# 429, 503 and 504 are tried again with it; it is never charged twice.
curl -i --retry 5 \
  -H 'Accept: application/json' \
  -H "PAYMENT-SIGNATURE: $SIGNATURE" \
  'https://api.example.com/v1/tools/dns?domain=example.com&type=MX'
