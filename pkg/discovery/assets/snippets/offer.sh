curl -i -H 'Accept: application/json' \
  'https://api.example.com/v1/tools/dns?domain=example.com&type=MX'
